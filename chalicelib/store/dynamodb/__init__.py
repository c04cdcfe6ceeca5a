"""The store on DynamoDB and S3. The only package that imports boto3."""
