package attention

import (
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/tensor"
)

// sequenceTask is a sequence of a call, with what an engine knows of it.
type sequenceTask struct {
	Sequence
	form Form
	work float64 // arithmetic of all heads

	priorKeys int64                // keys of the state before it, 0 if none of them exists
	stats     []headtask.NormStats // of the queries of every head, then of the keys; nil: none
}

// sequenceTasks returns the sequences of a call.
func sequenceTasks[T tensor.Float](c *Call[T]) []sequenceTask {
	return appendSequenceTasks(nil, new([]Sequence), c)
}

// appendSequenceTasks appends the sequences of a call to list. room is memory that is kept.
func appendSequenceTasks[T tensor.Float](list []sequenceTask, room *[]Sequence, c *Call[T]) []sequenceTask {
	*room = c.AppendSequences((*room)[:0])
	for _, s := range *room {
		list = append(list, sequenceTask{Sequence: s})
	}
	return list
}
