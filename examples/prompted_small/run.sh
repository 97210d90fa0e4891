#!/usr/bin/env bash
# The README's run on prompts, from published data to its table: an hour of two cores' time in all.
#
#     bash examples/prompted_small/run.sh LABELLED NOVELS PROMPTS OUT
#
# LABELLED is what prepare.py reads, NOVELS JSON lines of English text, PROMPTS a folder of promptsource's templates.
# Every command goes on where it was stopped, or says that it is done: give the same line again after a kill.
# FEWER=400 before it divides the steps by 400, to see whether all of it runs.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
labelled=$(realpath "$1") novels=$(realpath "$2") prompts=$(realpath "$3")
mkdir -p "$4"
cd "$4"
steps() { echo $(($1 / ${FEWER:-1})); }

texts=(data/text/{rotten_tomatoes,trec,sick,glue_mrpc}.jsonl)
if [ ! -d data ]; then python "$here/prepare.py" "$labelled" data.new; mv data.new data; fi
if [ ! -d pairs ]; then python "$here/pairs.py" pairs.new "$novels" "${texts[@]}"; mv pairs.new pairs; fi
[ -f my.model ] || spanloom vocab train --text "${texts[@]}" --size 8000 --out my.model

reviews_and_questions=(rotten_tomatoes=data/rotten_tomatoes trec=data/trec)
sentences=(sick=data/sick glue/mrpc=data/glue_mrpc)
cosine=(--optimizer adamw-rms --schedule cosine --eval.batch-size 64 --after.export false --after.fills 0)

# Text: span corruption of the novels and of the sentences to learn from, one as often as the other.
spanloom train multilingual --text novels="$novels" reviews="${texts[0]}" questions="${texts[1]}" entailment="${texts[2]}" \
  paraphrase="${texts[3]}" --alpha 0 --vocabulary my.model --model t5_1_1_small --model.vocab-size 8192 --model.d-model 128 \
  --model.d-ff 512 --model.num-heads 4 --model.d-kv 32 --model.num-encoder-layers 4 --model.num-decoder-layers 1 \
  --model.tie-embeddings true --inputs-length 128 --noise-density 0.25 --batch-size 8 "${cosine[@]}" \
  --schedule.warmup-steps 100 --schedule.decay-steps 1000 --schedule.end-factor 0.05 --after.baselines false \
  --steps "$(steps 1000)" --eval.max-batches 4 --out runs/text

# Short prompts: whether a review is good, what a question asks for, which pairs of a few words have the same ones.
slow=("${cosine[@]}" --optimizer.learning-rate 0.004 --schedule.warmup-steps 50)
spanloom train prompted --data short=pairs/short "${reviews_and_questions[@]}" --prompts pairs/short.yaml \
  "$here"/short/{rotten_tomatoes,trec}.yaml --learn '*' --maximum 20000 --inputs-length 64 --targets-length 16 --batch-size 32 \
  "${slow[@]}" --model.dropout 0 --schedule.decay-steps 1200 --schedule.end-factor 0.05 --eval.every 200 \
  --eval.max-batches 4 --start runs/text --steps "$(steps 1200)" --out runs/short

# Pairs: how many words two sentences share, beside what the data sets ask, in short prompts.
spanloom train prompted --data short=pairs/short mixed=pairs/mixed "${reviews_and_questions[@]}" "${sentences[@]}" \
  --prompts pairs/{short,mixed}.yaml "$here/short" --learn '*' --maximum 20000 --inputs-length 128 --targets-length 24 \
  --batch-size 16 "${slow[@]}" --model.dropout 0 --schedule.decay-steps 3300 --schedule.end-factor 0.05 --eval.every 300 \
  --eval.max-batches 4 --start runs/short --steps "$(steps 3300)" --out runs/pairs

# All prompts, beside the pairs and the short ones: T0's cap (--maximum), packed.
spanloom train prompted --data short=pairs/short mixed=pairs/mixed "${reviews_and_questions[@]}" "${sentences[@]}" \
  --prompts "$prompts" pairs/{short,mixed}.yaml "$here/short" \
  --learn 'short_*' 'mixed_*' 'rotten_tomatoes_*' 'sick_*' 'glue_mrpc_[!g]*' 'trec_[!f]*' 'trec_fine_grained_open*' \
  --judge rotten_tomatoes_Reviewer_Expressed_Sentiment 'rotten_tomatoes_Reviewer_Enjoyment*' trec_trec1 \
  'trec_what_category*' sick_A_entails_B_ glue_mrpc_same_thing --maximum 9000 --inputs-length 256 --targets-length 32 \
  --batch-size 8 "${slow[@]}" --model.dropout 0.07 --schedule.decay-steps 1800 --schedule.end-factor 0.02 --eval.every 500 \
  --eval.max-batches 2 --start runs/pairs --steps "$(steps 1800)" --out runs/prompted

# Judged by summed log-probability, as T0 was: the validation parts; the authors' tests of pairs, and COPA, whole.
spanloom eval runs/prompted --decode false --bootstrap --tasks 'rotten*' 'trec_[!f]*' 'sick_[!s]*' 'glue*'
spanloom eval runs/prompted prompted --data sick=data/sick/test.jsonl glue/mrpc=data/glue_mrpc/test.jsonl \
  super_glue/copa=data/super_glue_copa/validation.jsonl --prompts "$prompts" --inputs-length 256 --targets-length 32 \
  --whole --decode false --bootstrap --tasks 'sick_[!s]*' 'glue_mrpc_[!g]*' 'super*' --out runs/test
python "$here/shared_words.py" data
