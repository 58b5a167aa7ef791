// Package train teaches models: the loop, its measurements, and checkpoints
// from which a run continues as if it had never stopped.
//
// A run is a folder. Each of its files is whole or not there at any moment, so
// that a run may be killed; what it loses are the updates since the last
// checkpoint, and it repeats them to the same bits. One trainer at a time owns the
// folder, from New or Resume to Close:
//
//	config.json          what was asked for, complete: it repeats the run
//	classes.txt          names of the classes, where they have any
//	scales.json          mean and deviation of numbers that are said in deviations
//	metrics.jsonl        one line for each update and each evaluation, with its checksum
//	events.out.tfevents… the same for TensorBoard
//	ckpt/step-00000200/  the last two checkpoints: model, vocabulary, optimiser
//	ckpt/latest          which of them to go on from
//	ckpt/best/           the model that did best on the validation part, of a task with
//	                     a part to be judged by, or of a run that may end early
package train
