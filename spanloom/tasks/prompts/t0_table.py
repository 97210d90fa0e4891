"""Which data sets T0 learns from and is judged by, and how many training examples each has (Sanh et al. 2022).

The figures are those of datasets.csv in github.com/bigscience-workshop/t-zero (Apache-2.0), whose code gives the names
of what is left out.
"""

from dataclasses import dataclass
from typing import Literal

from spanloom.tasks.prompts.template import DataSetName

Learnt = Literal["BASE", "GPT_EVAL", "SGLUE"]
Judged = Literal["BASE", "BIAS_FAIRNESS"]


@dataclass(frozen=True)
class T0DataSet:
    """One row of the table."""

    name: DataSetName
    learnt: Learnt | None
    """T0 has BASE; T0+ GPT_EVAL, too; T0++ SGLUE, too; None: it is never learnt from."""
    judged: Judged | None
    """Which evaluation it is in."""
    train_size: int
    """Examples to train on; 0 where the table has none."""


_TABLE = """
crows_pairs                     -         BIAS_FAIRNESS         -
jigsaw_toxicity_pred            -         BIAS_FAIRNESS         -
super_glue/axg                  -         BIAS_FAIRNESS         -
wino_bias/type1_anti            -         BIAS_FAIRNESS         -
wino_bias/type2_anti            -         BIAS_FAIRNESS         -
wino_bias/type1_pro             -         BIAS_FAIRNESS         -
wino_bias/type2_pro             -         BIAS_FAIRNESS         -
super_glue/wsc.fixed            SGLUE     BASE                554
winogrande/winogrande_xl        -         BASE              40398
super_glue/cb                   -         BASE                250
super_glue/rte                  -         BASE               2490
anli                            -         BASE             162865
glue/mrpc                       BASE      -                  3668
glue/qqp                        BASE      -                363846
paws/labeled_final              BASE      -                 49401
ai2_arc/ARC-Challenge           GPT_EVAL  -                  1119
ai2_arc/ARC-Easy                GPT_EVAL  -                  2251
kilt_tasks/hotpotqa             BASE      -                 88869
trivia_qa/unfiltered            GPT_EVAL  -                 87622
web_questions                   GPT_EVAL  -                  3778
wiki_qa                         BASE      -                 20360
adversarial_qa/dbidaf           BASE      -                 10000
adversarial_qa/dbert            BASE      -                 10000
adversarial_qa/droberta         BASE      -                 10000
duorc/SelfRC                    BASE      -                 60721
duorc/ParaphraseRC              BASE      -                 69524
ropes                           BASE      -                 10924
squad_v2                        GPT_EVAL  -                130319
super_glue/record               SGLUE     -                100730
quoref                          BASE      -                 19399
cos_e/v1.11                     BASE      -                  9741
cosmos_qa                       BASE      -                 25262
dream                           BASE      -                  6116
openbookqa/main                 GPT_EVAL  -                  4957
qasc                            BASE      -                  8134
quail                           BASE      -                 10246
quarel                          BASE      -                  1941
quartz                          BASE      -                  2696
race/high                       GPT_EVAL  -                 62445
race/middle                     GPT_EVAL  -                 25421
sciq                            BASE      -                 11679
social_i_qa                     BASE      -                 33410
super_glue/boolq                SGLUE     -                  9427
super_glue/copa                 SGLUE     BASE                400
super_glue/multirc              SGLUE     -                 27243
wiki_hop/original               BASE      -                 43738
wiqa                            BASE      -                 29808
piqa                            GPT_EVAL  -                 16113
amazon_polarity                 BASE      -               3600000
app_reviews                     BASE      -                288065
imdb                            BASE      -                 25000
rotten_tomatoes                 BASE      -                  8530
yelp_review_full                BASE      -                650000
story_cloze/2016                -         BASE                  -
hellaswag                       GPT_EVAL  BASE              39905
common_gen                      BASE      -                 67389
wiki_bio                        BASE      -                582659
cnn_dailymail/3.0.0             BASE      -                287113
gigaword                        BASE      -               3803957
multi_news                      BASE      -                 44972
samsum                          BASE      -                 14732
xsum                            BASE      -                204045
ag_news                         BASE      -                120000
dbpedia_14                      BASE      -                560000
trec                            BASE      -                  5452
super_glue/wic                  SGLUE     BASE               5428
"""

LEFT_OUT = frozenset(
    {
        "ecthr_cases_alleged_violation_prediction_silver_rationales",
        "gigaword_summarize_",
        "hotpot_qa_distractor_Generate_Answer",
        "hotpot_qa_distractor_Generate_Answer_and_Explanations",
        "hotpot_qa_distractor_Generate_Explanations",
        "hotpot_qa_distractor_Generate_Question",
        "hotpot_qa_distractor_Generate_Title_1",
        "hotpot_qa_distractor_Generate_Title_2",
        "hotpot_qa_fullwiki_Generate_Answer",
        "hotpot_qa_fullwiki_Generate_Answer_and_Explanations",
        "hotpot_qa_fullwiki_Generate_Explanations",
        "hotpot_qa_fullwiki_Generate_Question",
        "hotpot_qa_fullwiki_Generate_Title_1",
        "hotpot_qa_fullwiki_Generate_Title_2",
        "narrativeqa_Template_05",
        "tab_fact_tab_fact_tab_fact_1",
        "tab_fact_tab_fact_tab_fact_2",
        "tab_fact_tab_fact_tab_fact_3",
        "tab_fact_tab_fact_tab_fact_4",
        "tab_fact_tab_fact_tab_fact_5",
        "tab_fact_tab_fact_tab_fact_6",
        "tab_fact_tab_fact_tab_fact_7",
        "wiki_hop_masked_Choose_Best_Object_Candidate",
        "wiki_hop_masked_Indirect_Question_about_Birthplace_Citizenship_Place_of_Death",
    }
)
"""Tasks that no mixture has: too long for 1,024 tokens, or broken when they were cached."""

LEFT_OUT_OF_TRAIN_EVAL = frozenset(
    {
        "amazon_polarity_Is_this_product_review_positive",
        "amazon_polarity_Is_this_review",
        "amazon_polarity_Is_this_review_negative",
        "amazon_polarity_User_recommend_this_product",
        "amazon_polarity_convey_negative_or_positive_sentiment",
        "amazon_polarity_flattering_or_not",
        "amazon_polarity_negative_or_positive_tone",
        "amazon_polarity_user_satisfied",
        "amazon_polarity_would_you_buy",
        "dbpedia_14_given_a_choice_of_categories_",
        "dbpedia_14_given_list_what_category_does_the_paragraph_belong_to",
        "dbpedia_14_pick_one_category_for_the_following_text",
        "wiki_hop_original_choose_best_object_affirmative_1",
        "wiki_hop_original_choose_best_object_affirmative_2",
        "wiki_hop_original_choose_best_object_affirmative_3",
        "wiki_hop_original_choose_best_object_interrogative_1",
        "wiki_hop_original_choose_best_object_interrogative_2",
    }
)
"""Tasks that the evaluation of training tasks leaves out."""

DATA_SETS_LEFT_OUT_OF_TRAIN_EVAL = (
    "adversarial_qa_dbert",
    "adversarial_qa_dbidaf",
    "amazon_polarity",
    "app_reviews",
    "dbpedia_14",
    "dream",
    "duorc_ParaphraseRC",
    "gigaword",
    "imdb",
    "multi_news",
    "paws_labeled_final",
    "samsum",
    "trec",
    "wiki_bio",
)
"""Tasks with one of these in their names it leaves out, too."""

NO_TEMPLATES = frozenset({("jigsaw_toxicity_pred", None)})
"""Data sets of the table for which promptsource has no templates."""


def t0_data_sets() -> tuple[T0DataSet, ...]:
    """The table."""
    return tuple(_row(*line.split()) for line in _TABLE.strip().splitlines())


def _row(name: str, learnt: str, judged: str, size: str) -> T0DataSet:
    dataset, _, subset = name.partition("/")
    return T0DataSet(
        (dataset, subset or None),
        None if learnt == "-" else learnt,  # type: ignore[arg-type]
        None if judged == "-" else judged,  # type: ignore[arg-type]
        0 if size == "-" else int(size),
    )
