# `make run` and `make test` need Python 3.11 or newer. They set up the rest in .venv, and in .emulators if npm exists.
# PYTHON= selects another interpreter; PORT= and the other settings of the server pass through.

PYTHON ?= python3
TABLES ?= tables
REPORT ?= report.html
MINUTES ?= 10
SEED ?= 1000000
EXPORT_TO ?= exports
# The newest full export: ids begin with the time, and only a full export has its data in its own folder.
EXPORT ?= $(patsubst %/data,%,$(lastword $(sort $(wildcard $(EXPORT_TO)/AWSDynamoDB/*-*/data))))
# Tests run in one process more than there are cores, up to this many; each starts its own emulator.
WORKERS_MAX ?= 8

# What is deployed where. INFRA= names templates of your own.
STAGE ?= dev
DEPLOYMENT = --stage "$(STAGE)" $(if $(REGION),--region "$(REGION)")
SURE = $(if $(filter-out 0,$(YES)),--yes)
OWN = $(foreach file,$(INFRA),--infra "$(file)")

VENV := .venv
BIN := $(VENV)/bin
DYNOXIDE := @dynoxide/linux-x64
DYNOXIDE_VERSION := 1.2.1
EMULATOR := .emulators/node_modules/$(DYNOXIDE)/dynoxide
MQ_SDK := .emulators/mq-sdk
MQ_SDK_VERSION := 1.0.4
TYPESCRIPT := .emulators/typescript
TYPESCRIPT_TOOLS := openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3
ELASTICMQ := .emulators/elasticmq
LOCALSTACK := .emulators/localstack
S3A := .emulators/s3a
MOTO_TESTS := .emulators/moto-sqs
# Not in .venv: they pin libraries of their own. Its Python is that of .venv, which packages are for.
AWS_TOOLS := .aws-tools
DOCS_TOOLS := .docs-tools

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help run export pipeline package deploy undeploy token test ready lint types hooks soak torment mutants bench emulators emulators-if-possible elasticmq-if-possible s3a-if-possible aws-tools docs localstack clean

help: ## list targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# A DynamoDB endpoint needs boto3.
run: $(VENV)/.run $(if $(AWS_ENDPOINT_URL_DYNAMODB)$(filter dynamodb,$(DECANT_STORE)),$(VENV)/.deploy) ## serve on 127.0.0.1:8000 (PORT) until Ctrl-C; DATA=folder keeps what is stored
	@exec $(BIN)/python -m local

export: $(VENV)/.deploy ## export the table at ENDPOINT (that of make run) into EXPORT_TO (exports); INCREMENTAL=1 for changes only
	@exec $(BIN)/python -m spark.exporting --to $(EXPORT_TO) $(if $(ENDPOINT),--endpoint $(ENDPOINT)) \
		$(if $(DECANT_TABLE),--table $(DECANT_TABLE)) $(if $(filter-out 0,$(INCREMENTAL)),--incremental)

package: $(VENV)/.deploy ## make the zip and the template of STAGE (dev), in packages; INFRA= names templates of your own
	@$(BIN)/python -m infra package $(DEPLOYMENT) $(OWN)

deploy: $(VENV)/.deploy ## show what would change in STAGE (dev) in AWS, ask, and carry it out; REGION=; YES=1 does not ask
	@$(BIN)/python -m infra deploy $(DEPLOYMENT) $(OWN) $(SURE)

undeploy: $(VENV)/.deploy ## remove STAGE (dev) from AWS; its table and buckets are kept
	@$(BIN)/python -m infra undeploy $(DEPLOYMENT) $(SURE)

token: $(VENV)/.deploy ## make a token for STAGE (dev) and print it as JSON; NAME=admin RIGHTS='[{"operations":["admin"],"topics":"*"}]'
	@$(BIN)/python -m infra token $(DEPLOYMENT) --name "$$NAME" --rights "$$RIGHTS"

# Without byte code, each process of the tests would compile the service, and them, again.
test: export PYTHONDONTWRITEBYTECODE =
test: ## check style and types, run all tests
	@$(MAKE) -j ready
	$(BIN)/python -m pytest -n auto --maxprocesses $(WORKERS_MAX)

# Side by side: most of it waits for the network, or takes one core.
ready: lint docs emulators-if-possible s3a-if-possible aws-tools $(MOTO_TESTS)

lint: $(VENV)/.dev ## check style, types and English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.english

types: $(VENV)/.dev $(TYPESCRIPT) ## build docs/schema.d.ts, the contract's types for TypeScript
	@$(BIN)/python -c 'import json; from chalicelib.doors.http.openapi import document; print(json.dumps(document()))' | \
		$(TYPESCRIPT)/node_modules/.bin/openapi-typescript --default-non-nullable=false --output docs/schema.d.ts

hooks: $(VENV)/.dev ## have git run make lint on what is staged before each commit
	git config core.hooksPath .ci/hooks

soak: $(VENV)/.dev ## play simulated histories for MINUTES (10)
	@exec $(BIN)/python -m tests.simulation --minutes $(MINUTES) --seed $(SEED)

torment: $(VENV)/.dev $(EMULATOR) ## stop, kill and restart servers over an emulator for MINUTES (10), with clocks that are off
	@exec $(BIN)/python -m tests.load --torment $(MINUTES) --seed $(SEED)

mutants: $(VENV)/.dev ## plant small changes in ROOM (all of them), count those that no check notices; measures for 15 minutes first; goes on where it stopped
	@exec $(BIN)/python -m tests.mutants $(ROOM)

bench: $(VENV)/.dev emulators-if-possible elasticmq-if-possible ## measure cost and speed
	@exec $(BIN)/python -m benchmarks

pipeline: $(VENV)/.spark ## run all jobs on EXPORT (the newest full one) and write REPORT (report.html); needs Java 17
	@test -n "$(EXPORT)" || { echo "decant: no full export in $(EXPORT_TO); run make export, or set EXPORT=" >&2; exit 64; }
	@umask 077; $(BIN)/python -m spark.jobs.pipeline --export "$(EXPORT)" --tables "$(TABLES)" --out "$(REPORT)"

emulators: $(EMULATOR) $(MQ_SDK) $(TYPESCRIPT) ## install the DynamoDB emulator that tests and benchmarks run against, and what tests need for Node

aws-tools: $(AWS_TOOLS)/.made ## install the AWS emulator and the linter of templates that tests run

docs: $(DOCS_TOOLS)/.made ## make the site of the documentation, in site; checks its links
	@NO_MKDOCS_2_WARNING=1 $(DOCS_TOOLS)/bin/mkdocs build --clean
	@echo "site/index.html"

localstack: $(LOCALSTACK)/.made ## install LocalStack (600 MB) for make bench to compare with

clean: ## remove everything the other targets made
	rm -rf $(VENV) $(AWS_TOOLS) $(DOCS_TOOLS) .emulators packages site .hypothesis .mutants .torment .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without npm, or on a platform the emulator does not support, its tests are skipped; CI fails instead.
emulators-if-possible:
	@if command -v npm >/dev/null; then $(MAKE) emulators || test -z "$$CI"; \
	elif test -n "$$CI"; then echo "decant: npm is needed in CI, to install the emulator" >&2; exit 1; \
	else echo "npm is missing: tests against the emulator are skipped"; fi

elasticmq-if-possible:
	@if command -v mvn >/dev/null && command -v java >/dev/null; then $(MAKE) $(ELASTICMQ); \
	else echo "Maven or Java is missing: nothing is compared with ElasticMQ"; fi

s3a-if-possible:
	@if command -v mvn >/dev/null && command -v java >/dev/null; then $(MAKE) $(S3A) || test -z "$$CI"; \
	elif test -n "$$CI"; then echo "decant: Maven is needed in CI, to install what Spark needs for S3" >&2; exit 1; \
	else echo "Maven or Java is missing: Spark is not tested on S3"; fi

$(ELASTICMQ): benchmarks/elasticmq.xml
$(S3A): tests/support/s3a.xml
$(ELASTICMQ) $(S3A):
	@rm -rf $@
	mvn --quiet --file $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$@
	@touch $@

$(EMULATOR):
	npm install --prefix .emulators --no-save --no-audit --no-fund --loglevel=error $(DYNOXIDE)@$(DYNOXIDE_VERSION)

$(MQ_SDK):
	npm install --prefix $@ --no-save --no-audit --no-fund --loglevel=error @aliyunmq/mq-http-sdk@$(MQ_SDK_VERSION)

$(TYPESCRIPT):
	npm install --prefix $@ --no-save --no-audit --no-fund --loglevel=error $(TYPESCRIPT_TOOLS)

# Of the installed version; only those of SQS.
$(MOTO_TESTS): requirements-dev.txt | $(VENV)/.dev
	@rm -rf $@ $@.sdist
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary moto --dest $@.sdist \
		moto==$$($(BIN)/python -c 'import moto; print(moto.__version__)')
	@mkdir -p $@
	@tar -xzf $@.sdist/moto-*.tar.gz -C $@ --strip-components=1 $(foreach part,__init__.py conftest.py markers.py test_sqs,--wildcards 'moto-*/tests/$(part)')
	@rm -r $@.sdist

$(VENV)/.run: requirements-serve.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "decant: Python 3.11 or newer is needed; PYTHON= is $(PYTHON)" >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-serve.txt
	@touch $@

$(VENV)/.deploy: $(VENV)/.run requirements.txt requirements-deploy.txt
	@echo "adding boto3 and Chalice to $(VENV), for AWS, its emulators and packages"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-deploy.txt
	@touch $@

$(VENV)/.spark: $(VENV)/.run requirements-spark.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-spark.txt
	@touch $@

# Tests import a quarter of it, which Python then compiles.
$(VENV)/.dev: $(VENV)/.deploy requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-dev.txt
	@touch $@

$(LOCALSTACK)/.made: benchmarks/localstack.txt | $(VENV)/.run
	@echo "setting up $(LOCALSTACK)"
	@$(BIN)/python -m venv $(LOCALSTACK)
	@$(LOCALSTACK)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/localstack.txt
	@touch $@

$(AWS_TOOLS)/.made: requirements-aws.txt | $(VENV)/.run
	@echo "setting up $(AWS_TOOLS)"
	@$(BIN)/python -m venv $(AWS_TOOLS)
	@$(AWS_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-aws.txt
	@touch $@

$(DOCS_TOOLS)/.made: requirements-docs.txt
	@echo "setting up $(DOCS_TOOLS)"
	@$(PYTHON) -m venv $(DOCS_TOOLS)
	@$(DOCS_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@
