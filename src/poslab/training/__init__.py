"""One training run, by Lightning; nothing is imported here.

train.py             a run from top to bottom (`train`): begin here
data/                data modules: loss, validation, samples and tests of a text, a stream, a task
module.py            the LightningModule: training step, validation, optimizer
loss.py              cross-entropy without the tensor of all logits
optimizer.py         the optimizer over named groups of parameters, its schedule, clipping
muon.py              Muon and AdamW as one optimizer
schedules.py         schedules of the learning rate
trainer.py           Lightning's Trainer with its callbacks; settings that it can't take
resume.py            a run that resumes: its checkpoint, and checks of what must not have changed
initial_model.py     the model that a run begins with; its weights, of another run or of a GPT-2
compilation.py       whether the model is compiled, and into CUDA graphs
machine.py           the machine: its memory and arithmetic of bfloat16
length.py            what may end a run, and what did
state.py             figures that a checkpoint holds beside Lightning's own
summary.py           summary.json of a run

Callbacks, of which none knows another:

figures.py           figures of training steps, and of probes
console.py           lines on the screen
loggers.py           TensorBoard, and those of `logger`; sample texts and pictures
run_ends.py          the end of a run after its steps, at its target, or where a loss is not finite
resume_points.py     where a run saves itself, how its files are written, and what it is given back
"""
