package engine

import (
	"github.com/farfield-ml/farfield/attention/internal/contract"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/tensor"
)

// SequenceTask is a sequence of a call, with what an engine knows of it.
type SequenceTask struct {
	contract.Sequence
	Form contract.Form
	Work float64 // arithmetic of all heads

	priorKeys int64                // keys of the state before it, 0 if none of them exists
	stats     []headtask.NormStats // of the queries of every head, then of the keys; nil: none
}

// SequenceTasks returns the sequences of a call.
func SequenceTasks[T tensor.Float](c *contract.Call[T]) []SequenceTask {
	return AppendSequenceTasks(nil, new([]contract.Sequence), c)
}

// AppendSequenceTasks appends the sequences of a call to list. room is memory that is kept.
func AppendSequenceTasks[T tensor.Float](list []SequenceTask, room *[]contract.Sequence, c *contract.Call[T]) []SequenceTask {
	*room = c.AppendSequences((*room)[:0])
	for _, s := range *room {
		list = append(list, SequenceTask{Sequence: s})
	}
	return list
}
