"""The store on DynamoDB and S3. In `chalicelib`, only this package imports boto3, once the service is built."""
