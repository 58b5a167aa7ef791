// Package train trains models: the training loop, its metrics, and checkpoints. A resumed
// run has the same bits as a run without interruption. New starts a run on data of any kind: a
// data.Source has two methods. The kind of its targets, data.Kind, decides the loss.
//
// A run on data of your own has no Predictor: Load of package model reads its model from the folder that
// ReadCheckpoint finds, and Logits of model.Model gives the outputs. If its tokens are bytes (data.ByteReporter), farfield.Open reads texts with it.
//
// With a loss of your own you write the loop: PackBatch makes a batch of samples, ForwardLogits and
// BackwardLogits of model.Model take the gradient of any loss, package optim has optimisers, and
// SaveByteModel, or Save of model.Model, keeps the model.
//
// Each run has a folder. At any moment each file in it is complete or absent, but for the
// ends of metrics.jsonl and events.out.tfevents, so a run may be killed. A killed run loses the
// updates since the last checkpoint and repeats them to the same bits. One trainer at a time owns the
// folder, from New or Resume to Close:
//
//	config.json          the complete configuration: it repeats the run
//	classes.txt          names of the classes, of a task with named classes
//	columns.txt          names of the columns of number sequences, where files name them
//	tokenizer.json       tokens of the model that the run starts from, or of labelled texts
//	scales.json          mean and standard deviation of standardised targets
//	metrics.jsonl        one line for each update and each evaluation, with its checksum
//	events.out.tfevents… the same for TensorBoard
//	ckpt/step-00000200/  the last two checkpoints: model, vocabulary, optimiser
//	ckpt/latest          name of the checkpoint that Resume reads
//	ckpt/best/           the model with the best validation score, if the run selects one
package train
