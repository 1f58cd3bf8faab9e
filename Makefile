# What to run and when; each target is one command that CI (.ci/run) or README uses too.
.PHONY: build lean test lint check race purego fuzz generate bench bench-compare bench-peers bench-tiers bench-store bench-rivals bench-paper bench-drive bench-weights frontier leaderboard bench-longbench bench-policies bench-inst bench-inst-accuracy slim-search module clean

PKG  ?= ./...
FUZZ ?= 10s
REF  ?= main
BENCH ?= .
MODEL ?= smollm2:135m
PEERS ?= $(HOME)/.cache/terrace-peers/bin/python
PEERS_ARGS ?= -p 512 -n 64
TEXT ?= book.txt
KV ?= kv-tiers
TIERS_ARGS ?= -p 0 -n 16 -d 8000
TIERS_HOST ?= 97MiB
RIVALS_HOST ?= 75MiB
PAPER_HOST ?= 2GiB
PAPER_ARGS ?= -n 4 -d 1920 --batch 8
DATA ?= ../shared/data/longbench
WIKITEXT ?= ../shared/data/wikitext-2
ESSAYS ?= ../shared/data/essays
RUNS ?= runs/frontier
FRONTIER_LENGTHS ?= 3500 7500
FRONTIER_SHARES ?= 5% 10% 20%
FRONTIER_TASKS ?= narrativeqa,multifieldqa_en,passage_retrieval_en,samsum,repobench-p

# The commit, with + where there are changes; the Go tool stamps it too, but not in every checkout (-buildvcs=false, no git).
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)$(shell git diff --quiet HEAD 2>/dev/null || echo +)

build: ## the static binary
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.commit=$(COMMIT)' -o bin/infer ./cmd/infer

lean: ## without gorgonia, gomlx, valkey, S3, NATS and Parquet (docs/backends.md)
	CGO_ENABLED=0 go build -tags lean -trimpath -ldflags '-s -w -X main.commit=$(COMMIT)' -o bin/infer-lean ./cmd/infer

test: ## what README says
	go test $(PKG)

module: ## another module path: make module MODULE=example.org/me/terrace
	go run ./internal/lint/rename $(MODULE)
	go build ./... && go vet ./...

lint: ## formatting, rules of the house, vet (of the pure Go kernels too), staticcheck
	@unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] || { echo "run gofmt -w on: $$unformatted"; exit 1; }
	go test -count=1 ./internal/lint
	go vet ./...
	go vet -tags purego ./internal/kernels/...
	go run honnef.co/go/tools/cmd/staticcheck ./...
	go run honnef.co/go/tools/cmd/staticcheck -tags purego ./internal/kernels/...

check: lint test race purego ## before every push

race: ## needs a C compiler
	CGO_ENABLED=1 go test -race -short $(PKG)

purego: ## without assembly
	go test -short -tags purego $(PKG)

fuzz: ## every fuzz target for FUZZ
	@for f in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | grep -vE '/(_|testdata)'); do \
	  for t in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' $$f); do \
	    go test -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZ) ./$$(dirname $$f) || exit 1; done; done

generate: ## assembly from internal/kernels/_asm
	go generate ./...

bench: ## Go benchmarks of PKG
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count 6 $(PKG)

bench-compare: ## benchmarks of PKG here against REF (benchstat)
	@tmp=$$(mktemp -d) && trap 'git worktree remove --force $$tmp/ref >/dev/null 2>&1; rm -rf $$tmp' EXIT && \
	git worktree add --detach $$tmp/ref $(REF) >/dev/null && \
	(cd $$tmp/ref && go test -run '^$$' -bench '$(BENCH)' -benchmem -count 6 $(PKG)) > $$tmp/old.txt; \
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count 6 $(PKG) > $$tmp/new.txt; \
	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da $$tmp/old.txt $$tmp/new.txt

bench-peers: build ## infer against llama.cpp, the same model and minutes (peers: ../shared/tools/peers/setup)
	$(PEERS) ../shared/tools/peers/compare --infer bin/infer --model "$$(bin/infer pull $(MODEL))" $(PEERS_ARGS)

bench-tiers: TIERS = on host=$(TIERS_HOST) ssd=$(KV),1GiB
bench-tiers: build ## TEXT on an SSD tier in folder KV against host memory, and against rivals through the same I/O, one host budget for all
	bin/infer profile $(KV)
	bin/infer bench -m $(MODEL) $(TIERS_ARGS) --continue --file $(TEXT) --case full --case hillinfer:alpha=0.1 --case "hillinfer:alpha=0.1 $(TIERS)" \
	  --case "hillinfer:alpha=0.1,score=int4 $(TIERS)" --case "full $(TIERS)" --case "infinigen:budget=10%,alpha=20 $(TIERS)" --case "leoam:budget=10% $(TIERS)" --case "h2o_offload:budget=20% $(TIERS)"

bench-store: build ## TTFT of a second question about a stored context of about 7,000 tokens (of docs/), another process, page cache dropped
	rm -rf $(KV)-store && mkdir -p $(KV)-store
	for q in "Who wrote this?" "What is it about?"; do { cat docs/*.md | head -c 21000; printf '\n\n%s' "$$q"; } >$(KV)-store/prompt; sync; \
	  if [ -w /proc/sys/vm/drop_caches ]; then echo 3 >/proc/sys/vm/drop_caches; else echo "the page cache is not dropped: not root"; fi; \
	  cat "$$(bin/infer pull $(MODEL) 2>/dev/null)" >/dev/null; \
	  bin/infer generate -m $(MODEL) --raw --prompt-file $(KV)-store/prompt --store ssd=$(KV)-store,1GiB --max-tokens 1 --temperature 0 --json | \
	    grep -oE '"(prompt_tokens|cached_tokens|ttft_ms)":[0-9.]+' || exit 1; done

# A mixture of experts in shares (per cent) of its file's size and WEIGHTS_BESIDE, where both run in a cgroup of that memory; root. llama.cpp maps the file;
# with Q4_0, which it repacks into memory, it was killed.
WEIGHTS_SHAPE ?= --arch gpt-oss --layers 6 --hidden 2880 --heads 64 --kv-heads 8 --head-dim 64 --ffn 2880 --experts 32 --experts-used 4 --vocab 32000 --type Q4_1
WEIGHTS_SHARES ?= 25 50 75
WEIGHTS_ROUNDS ?= 3
WEIGHTS_BESIDE ?= 335544320
WEIGHTS_ARGS ?= -p 512 -n 16
WEIGHTS_MODEL = $(KV)-weights/model.gguf
WEIGHTS_ROW = sed -nE 's/.*"test":"([^"]*)".*"batch":([0-9]*),"tps_median":([0-9.]*).*"bytes_read":([0-9]*).*"hits":([0-9.]*).*/terrace \1, batch \2: \3 tokens\/s, \4 bytes read since it was opened, hits \5/p'
bench-weights: build ## a mixture of experts larger than memory, beside llama.cpp with mmap (peers: ../shared/tools/peers/setup), in turns
	mkdir -p $(KV)-weights && { test -f $(WEIGHTS_MODEL) || bin/infer synth $(WEIGHTS_MODEL) $(WEIGHTS_SHAPE); }
	group=/sys/fs/cgroup/memory/terrace-bench; limit=memory.limit_in_bytes; test -d /sys/fs/cgroup/memory || { group=/sys/fs/cgroup/terrace-bench; limit=memory.max; }; \
	mkdir -p $$group && trap "rmdir $$group" EXIT && \
	within() { (echo 0 >$$group/cgroup.procs && exec "$$@"); }; size=$$(stat -c %s $(WEIGHTS_MODEL)); \
	forget() { $(PEERS) -c 'import os, sys; f = os.open(sys.argv[1], os.O_RDONLY); os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)' $(WEIGHTS_MODEL); }; \
	for share in $(WEIGHTS_SHARES); do bytes=$$((size * share / 100 + $(WEIGHTS_BESIDE))); echo $$bytes >$$group/$$limit; \
	  for round in $$(seq $(WEIGHTS_ROUNDS)); do echo "$$share % and $(WEIGHTS_BESIDE) bytes, round $$round, load $$(cut -d' ' -f1 /proc/loadavg)"; \
	    within bin/infer bench -m $(WEIGHTS_MODEL) --memory $$bytes $(WEIGHTS_ARGS) -r 1 -o jsonl | $(WEIGHTS_ROW); \
	    within bin/infer bench -m $(WEIGHTS_MODEL) --memory $$bytes -p 0 -n 8 --batch 8 -r 1 -o jsonl | $(WEIGHTS_ROW); \
	    forget; within $(PEERS) ../shared/tools/peers/compare --child llama.cpp --model $(WEIGHTS_MODEL) $(WEIGHTS_ARGS) || echo "llama.cpp: failed in this memory"; done; done

bench-rivals: TIERS = on host=$(RIVALS_HOST) ssd=$(KV),1GiB
bench-rivals: build ## the systems hillinfer is compared with, what they scan of the keys on the SSD, one host budget for all
	bin/infer profile $(KV)
	bin/infer bench -m $(MODEL) $(TIERS_ARGS) --continue --file $(TEXT) --case full --case "hillinfer:alpha=0.1,score=int4 $(TIERS)" \
	  --case "full $(TIERS)" --case "h2o_offload:budget=20% $(TIERS)" --case "infinigen:budget=10%,sketch=storage $(TIERS)" \
	  --case "infinigen:budget=10%,alpha=20,sketch=storage $(TIERS)" --case "leoam:budget=10%,sketch=storage $(TIERS)"

bench-paper: TIERS = on host=$(PAPER_HOST) ssd=$(KV),8GiB
bench-paper: build ## HillInfer's operating point: SmolLM2 with the KV of Llama-2-7B in 16 layers, 1,920 tokens, batch 8, alpha 0.2, one host budget (half of the KV)
	bin/infer profile $(KV)
	test -f $(KV)/wide.gguf || bin/infer widen smollm2:135m $(KV)/wide.gguf --kv-heads 32 --head-dim 128 --layers 16
	for c in "hillinfer:alpha=0.2" "hillinfer:alpha=0.2,score=int4" "hillinfer:alpha=0.1,score=int4" "h2o_offload:budget=20%" "infinigen:budget=20%,alpha=4" \
	  "infinigen:budget=20%,alpha=4,sketch=storage" "leoam:budget=20%" "leoam:budget=20%,sketch=storage"; do \
	  bin/infer bench -m $(KV)/wide.gguf -p 0 $(PAPER_ARGS) -r 5 --continue --file $(TEXT) --case "full $(TIERS)" --case "$$c $(TIERS)" || exit 1; done

# The shape of the papers' larger models in 8 layers of random weights: 8 KV heads of 128. Every case reads the prompt for itself, on one core.
DRIVE_DEPTH ?= 16000
DRIVE_HOST ?= 260MiB
DRIVE_ARGS ?= -n 8 -r 4
DRIVE_DDR ?= full hillinfer:alpha=0.1 hillinfer:alpha=0.1,drive=true hillinfer:alpha=0.1,drive=false leoam:budget=10%,sketch=storage
DRIVE_NAND ?= full hillinfer:alpha=0.1 hillinfer:alpha=0.1,drive=true hillinfer:alpha=0.1,drive=false
DRIVE_SOCKET = $(abspath $(KV))/drive.sock
bench-drive: build ## a drive paced as a SmartSSD on core 1, the host on core 0: TEXT at DRIVE_DEPTH tokens in DRIVE_HOST, keys in the drive's memory, then on flash
	mkdir -p $(KV) && { test -f $(KV)/drive.gguf || bin/infer synth $(KV)/drive.gguf --layers 8 --hidden 1024 --heads 8 --kv-heads 8 --ffn 1024 --context 40960; }
	taskset -c 0 bin/infer profile -t 1
	run() { keys=$$1; shift; for c; do shift; set -- "$$@" --case "$$c on host=$(DRIVE_HOST) csd=unix:$(DRIVE_SOCKET)"; done; rm -rf $(KV)/drive; \
	  bin/infer csd serve --profile smartssd --clock real --core 1 --no-sync --keys $$keys --dir $(KV)/drive --socket $(DRIVE_SOCKET) & drive=$$!; \
	  trap "kill $$drive" EXIT; while ! test -S $(DRIVE_SOCKET); do kill -0 $$drive || exit 1; sleep 0.1; done; echo "keys=$$keys"; \
	  taskset -c 0 bin/infer bench -m $(KV)/drive.gguf -t 1 -p 0 -d $(DRIVE_DEPTH) $(DRIVE_ARGS) --continue --file $(TEXT) -o jsonl "$$@"; }; \
	{ test -z '$(DRIVE_DDR)' || (run ddr $(DRIVE_DDR)); } && { test -z '$(DRIVE_NAND)' || (run nand $(DRIVE_NAND)); }

FRONTIER_FEWEST = tailcodes:budget=1%,part=8,value_part=16 tailcodes:budget=2%,part=8,value_part=16 tailcodes:budget=2%,part=4,value_part=16 pqcache:budget=2% leoam:budget=2% rocketkv:budget=4%
FRONTIER_CASES = $(foreach b,$(FRONTIER_SHARES),--policy "tailcodes:budget=$b" --policy "pqcache:budget=$b" --policy "topk:budget=$b,score=int4" \
  --policy "quest:budget=$b,dense_layers=0" --policy "leoam:budget=$b" --policy "infinigen:budget=$b,alpha=8,dense_layers=0" --policy "sparq:budget=$b" \
  --policy "hillinfer:alpha=$b,score=int4" --policy "kvswap:budget=$b,query=exact,rank=50%" --policy "double_sparsity:budget=$b,dense_layers=0" \
  --policy "rocketkv:budget=$b" --policy "vattention:select=pqcache,budget=$b,epsilon=30%" --policy "oracle:budget=$b") \
  --policy magicpig --policy magicpig:bits=8,tables=20,full_layers=0 --policy magicpig:bits=6,tables=10,full_layers=0
frontier: build ## KL from full over bytes moved a token, every selector, 10 rows of DATA, two models and lengths; hours, resumable, in RUNS
	for m in smollm2:135m/32 gemma3:270m/128; do for n in $(FRONTIER_LENGTHS); do \
	  bin/infer eval --suite agreement --data $(DATA) --tasks $(FRONTIER_TASKS) --limit 2 --tokens 16 --model $${m%/*} --max-context $$n --out $(RUNS)/$${m%%:*}-$$n \
	    --policy full $(FRONTIER_CASES) --policy tailcodes:budget=2% --policy tailcodes:budget=5%,part=4 \
	    $(foreach c,$(FRONTIER_FEWEST),--policy $c) --policy pqcache:budget=10%,subvectors=$${m#*/},bits=4 \
	    --policy topp:select=topk,score=int4,budget=20%,p=0.85 --policy topp:select=topk,score=int4,budget=20%,p=0.95 \
	    --policy retroinfer --policy retroinfer:retrieval=10%,estimation=90% || exit 1; done; done
	bin/infer compare $(RUNS)/*/ --csv --frontier docs/benchmarks/frontier.svg --title "KV policies: closeness to full over bytes moved (make frontier)" > docs/benchmarks/frontier.csv

# Shares lie around those of the page's columns, so that each method can be put at equal bytes; readers' indexes take bytes too.
LEADERBOARD_RUNS ?= smollm2:135m/4k gemma3:270m/4k gemma3:270m/16k
LEADERBOARD_LIMIT ?= 10
LEADERBOARD_PAGE ?= docs/benchmarks/leaderboard.html
LEADERBOARD_CASES = $(foreach b,5% 10% 25% 50%,--policy streaming_llm:budget=$b --policy snapkv:budget=$b --policy expected_attention:budget=$b \
  --policy compactor:budget=$b --policy adakv:press=snapkv,budget=$b --policy criticalkv:press=snapkv,budget=$b) \
  $(foreach b,10% 25% 50%,--policy quest:dense_layers=0,budget=$b --policy topk:score=int4,budget=$b --policy tailcodes:budget=$b) \
  --policy quest:dense_layers=0,budget=2% $(foreach b,2% 10%,--policy tailcodes:part=4,value_part=16,budget=$b)
leaderboard: build ## RULER at equal bytes, LEADERBOARD_RUNS (model/length) x methods x budgets, as one page and a CSV file; hours, resumable, beside RUNS
	for r in $(LEADERBOARD_RUNS); do m=$${r%/*}; n=$${r##*/}; \
	  bin/infer eval --suite ruler --data $(ESSAYS) --lengths $$n --limit $(LEADERBOARD_LIMIT) --batch 4 --model $$m --policy full $(LEADERBOARD_CASES) --out $(dir $(RUNS))leaderboard/$${m%%:*}-$$n || exit 1; done
	bin/infer compare $(dir $(RUNS))leaderboard/*/ -o md --leaderboard $(LEADERBOARD_PAGE) --title "RULER leaderboard (make leaderboard)"

# Of the papers that tiers.md compares, and of the newer policies; a fifth is read or kept where a policy does not say otherwise itself.
LONGBENCH_POLICIES = hillinfer:alpha=0.1 hillinfer:alpha=0.2 infinigen:budget=20%,alpha=8 leoam:budget=20% sparq quest:budget=20% h2o:budget=20% \
  snapkv:budget=20% tova:budget=20% streaming_llm:budget=20% sliminfer
NEWER_POLICIES = tailcodes:budget=10% pqcache:budget=20% kvswap:budget=20% topp:select=topk,budget=20%,p=0.95 retroinfer kvzip:budget=50% kvzip_plus:budget=50% \
  dms:press=snapkv,threshold=5e-5
LONGBENCH_CASES = --policy full $(foreach c,$(LONGBENCH_POLICIES),--policy $c)
POLICY_CASES = $(foreach c,$(NEWER_POLICIES),--policy $c)
LONGBENCH_LIMIT ?= 0
RULER_LIMIT ?= 10
bench-longbench: build ## LongBench at 3,500 tokens (newer policies too) and 7,500, with paired intervals; hours, resumable, beside RUNS; fewer rows a task with LONGBENCH_LIMIT
	bin/infer eval --suite longbench --data $(DATA) --max-context 3500 --limit $(LONGBENCH_LIMIT) --batch 8 --model $(MODEL) $(LONGBENCH_CASES) $(POLICY_CASES) --out $(RUNS)-longbench-3500
	bin/infer eval --suite longbench --data $(DATA) --max-context 7500 --limit $(LONGBENCH_LIMIT) --batch 8 --model $(MODEL) $(LONGBENCH_CASES) --out $(RUNS)-longbench-7500
	for n in 3500 7500; do bin/infer compare $(RUNS)-longbench-$$n --markdown || exit 1; done

bench-policies: build ## RULER at 4k under the newer policies, with paired intervals; an hour, resumable, beside RUNS (LongBench: bench-longbench)
	bin/infer eval --suite ruler --data $(ESSAYS) --lengths 4k --limit $(RULER_LIMIT) --batch 4 --model $(MODEL) --policy full $(POLICY_CASES) --policy hillinfer:alpha=0.1 --policy quest:budget=20% --out $(RUNS)-ruler
	bin/infer compare $(RUNS)-ruler --markdown

SLIM_TASKS ?= narrativeqa,qasper,multifieldqa_en,hotpotqa,2wikimqa,gov_report,qmsum,triviaqa,samsum,passage_retrieval_en,lcc,repobench-p
SLIM_LAYERS = 6/9/19 6/12/18 6/15/24 9/12/19 9/19/28
SLIM_KEEPS = 50%/25%/12.5% 40%/20%/10% 25%/12.5%/6.25%
slim-search: build ## a search for sliminfer's layers and shares on each task's first row of DATA; then preset=early on each second row, which it has not seen
	mkdir -p $(RUNS)-slim/first $(RUNS)-slim/second
	for t in $$(echo $(SLIM_TASKS) | tr , ' '); do sed -n 1p $(DATA)/$$t.jsonl > $(RUNS)-slim/first/$$t.jsonl; sed -n 2p $(DATA)/$$t.jsonl > $(RUNS)-slim/second/$$t.jsonl; done
	bin/infer eval --suite agreement --data $(RUNS)-slim/first --tasks $(SLIM_TASKS) --tokens 24 --max-context 3000 --model $(MODEL) --out $(RUNS)-slim/search --policy full --policy sliminfer \
	  $(foreach l,$(SLIM_LAYERS),$(foreach k,$(SLIM_KEEPS),--policy sliminfer:layers=$l,keep=$k))
	bin/infer eval --suite agreement --data $(RUNS)-slim/second --tasks $(SLIM_TASKS) --tokens 24 --max-context 3000 --model $(MODEL) --out $(RUNS)-slim/held-out --policy full --policy sliminfer --policy sliminfer:preset=early
	bin/infer compare $(RUNS)-slim/search --against sliminfer --markdown && bin/infer compare $(RUNS)-slim/held-out --against sliminfer --markdown

# Compression ratios 1 to 1/16 as in InstInfer's Fig. 11: r = ratio*d and k = ratio*S/2 (sparf's default), other splits of the same bytes, no mean value.
INST_SPLITS = sparf:r=12,k=3.125% sparf:r=4,k=9.375% sparf:r=6,k=1.5625% sparf:r=2,k=4.6875% sparq:rank=8,budget=6.25%,mean_value=false sparq:rank=4,budget=3.125%,mean_value=false
INST_CASES = --policy full $(foreach b,100% 50% 25% 12.5% 6.25%,--policy sparf:ratio=$b) --policy sparq:rank=12.5%,budget=6.25% --policy sparq:rank=6.25%,budget=3.125% \
  $(foreach b,50% 25% 12.5% 6.25%,--policy h2o:budget=$b --policy streaming_llm:budget=$b) $(foreach s,$(INST_SPLITS),--policy $s)
bench-inst-accuracy: build ## sparf, sparq, h2o and streaming_llm at InstInfer's compression ratios: perplexity, agreement, two LongBench tasks; half an hour of a core, resumable, beside RUNS
	bin/infer eval --suite perplexity --data $(WIKITEXT) --chunk 1024 --limit 8 --batch 8 --model $(MODEL) $(INST_CASES) --out $(RUNS)-inst-perplexity
	bin/infer eval --suite agreement --data $(DATA) --limit 1 --tokens 16 --max-context 1200 --model $(MODEL) $(INST_CASES) --out $(RUNS)-inst-agreement
	bin/infer eval --suite longbench --data $(DATA) --tasks triviaqa,qasper --max-context 3500 --model $(MODEL) $(INST_CASES) --out $(RUNS)-inst-longbench
	for s in perplexity agreement longbench; do bin/infer compare $(RUNS)-inst-$$s --markdown || exit 1; done

INST_BATCHES ?= 1 4 8 16
INST_DEPTH ?= 2000
INST_HOST ?= $$((8+11*b))MiB
INST_DRIVE = csd=unix:$(KV)-inst/s
bench-inst: build ## attention in InstInfer's drive (modelled, on core 1) beside FlexGen-style streaming from it and from the SSD, batch 1 to 16; drives and stages modelled
	rm -rf $(KV)-inst && mkdir -p $(KV)-inst
	bin/infer csd serve --dir $(KV)-inst/d --capacity 32GiB --socket $(KV)-inst/s --profile instcsd --no-sync --core 1 & trap "kill $$!" EXIT; sleep 2; \
	for b in $(INST_BATCHES); do taskset -c 0 bin/infer bench -m $(MODEL) -t 1 -p 0 -n 8 -r 3 -d $(INST_DEPTH) --batch $$b --continue --file $(TEXT) -o md \
	  --case "full on host=$(INST_HOST) $(INST_DRIVE)" --case "sparf:ratio=12.5% on $(INST_DRIVE)" --case "sparf:mode=dense on $(INST_DRIVE)" \
	  --case "full on host=$(INST_HOST) ssd=$(KV),4GiB" --case "sparq:rank=12.5%,budget=6.25%,sketch=storage on host=$(INST_HOST) ssd=$(KV),4GiB" || exit 1; done
	bin/infer simulate instinfer-built

clean:
	rm -rf bin
