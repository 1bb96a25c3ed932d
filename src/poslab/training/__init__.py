"""One training run, by Lightning; nothing is imported here.

train.py             a run from top to bottom (`train`): begin here
resume.py            a run that resumes: its checkpoint, and checks of what must not have changed
state.py             progress and figures that a checkpoint holds beside Lightning's own
initial_weights.py   weights to begin with, of another run or of a GPT-2
module.py            the LightningModule: training step, validation, optimiser
sharded.py           the same with parameters divided among processes (FSDP2, experimental)
loss.py              cross-entropy without the tensor of all logits
machine.py           the machine: its threads, memory, arithmetic of bfloat16 and compiler
trainer.py           Lightning's Trainer with its callbacks; settings that it can't take, batches of an epoch
checkpoints.py       callback: checkpoints, the best weights
run_ends.py          callbacks: the end of a run after its steps, at its target, or where a loss is not finite
lightning_loops.py   what is read from the state of Lightning's loops
console.py           lines on the screen
loggers.py           TensorBoard, csv, wandb, mlflow
summary.py           summary.json of a run
"""
