"""The store on DynamoDB and S3. In `chalicelib`, only this package imports boto3, with the first request."""
