package train

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/train/data"
)

// levelMixtureSize is the default number of logistics in the mixture of a level
// (Katharopoulos et al. 2020, section 4.2).
const levelMixtureSize = 10

// adaptModelToTask sets the inputs, outputs and loss of the model to fit the task. A kind
// or pooling that the configuration gives is kept. It returns an error if the two do not
// fit.
func (c *Config) adaptModelToTask(s data.Spec) error {
	m := &c.Model
	length := s.Length / s.Sequences()
	if c.Init != "" {
		if m.Vocab != s.Vocab || m.Inputs != s.Channels {
			return fieldErrorf("{Init}: the model reads %d tokens or %d numbers, task %s has %d or %d", m.Vocab, m.Inputs, s.Name, s.Vocab, s.Channels)
		}
		m.Context = length
		if m.HeadHidden == 0 { // left out by a flag
			m.HeadActivation, m.HeadNorm = "", false
		}
		m.Tied = m.Tied && s.Kind == data.Next && s.Classes == s.Vocab
	}
	if m.Context != 0 && m.Context != length {
		return fieldErrorf("{Model.Context}: %d, but the samples of task %s have up to %d positions; set the task's length, or leave out the context", m.Context, s.Name, length)
	}
	m.Context, m.Vocab, m.Inputs = length, s.Vocab, s.Channels
	m.Parts, m.Loss = 0, model.CrossEntropy
	if s.Parts == 2 {
		m.Parts = 2
	}
	whole := false // one output for all positions
	switch s.Kind {
	case data.Next:
		m.Outputs = s.Classes
		if s.Classes == s.Vocab {
			m.Outputs = 0
		}
		if m.Kind == "" {
			m.Kind = model.Decoder
		}
		if m.Kind != model.Decoder {
			return fieldErrorf("{Model.Kind}: %s cannot learn task %s, which needs a %s; set {Model.Kind} to %s, or leave it out", m.Kind, s.Name, model.Decoder, model.Decoder)
		}
	case data.Level:
		if m.Outputs == 0 {
			m.Outputs = 3 * levelMixtureSize
		}
		m.Loss = model.Logistics
		if m.Kind == "" {
			m.Kind = model.Decoder
		}
		if m.Kind != model.Decoder {
			return fieldErrorf("{Model.Kind}: %s cannot learn task %s, which needs a %s; set {Model.Kind} to %s, or leave it out", m.Kind, s.Name, model.Decoder, model.Decoder)
		}
	case data.Class:
		m.Outputs, whole = s.Classes, true
	case data.Labels:
		m.Outputs = s.Classes
	case data.Regression:
		m.Outputs, m.Loss, whole = s.Outputs, model.Squared, true
	case data.Trace:
		m.Outputs, m.Loss = s.Outputs, model.Squared
	default:
		return fmt.Errorf("task %s: asks for %v, which no model says", s.Name, s.Kind)
	}
	if m.Kind == "" {
		m.Kind = model.Encoder
	}
	if whole && m.Pool == "" {
		if m.Pool = model.PoolMean; m.Kind == model.Decoder {
			m.Pool = model.PoolLast
		}
	}
	if !whole && m.Pool != "" {
		return fieldErrorf("{Model.Pool}: %s, but task %s asks for an output of each position; leave out {Model.Pool}", m.Pool, s.Name)
	}
	return nil
}

// setPositions sets the default kind of positions. It returns an error if the model uses
// the order of points that have none.
func (c *Config) setPositions(src data.Source) error {
	m := &c.Model
	if u, ok := src.(data.OrderReporter); ok {
		c.isUnordered = u.IsUnordered()
	}
	switch {
	case !c.isUnordered && m.Positions == "" && m.Kind != model.Convolutional:
		m.Positions = model.Learned
	case !c.isUnordered:
	case m.Positions == "":
		m.Positions = model.NoPosition
	case m.Positions != model.NoPosition:
		return fieldErrorf("{Model.Positions}: %s, but the points of task %s have no order; set {Model.Positions} to %s, or leave it out", m.Positions, c.Task, model.NoPosition)
	}
	if c.isUnordered && m.Kind != model.Encoder {
		return fieldErrorf("{Model.Kind}: %s sees an order, but the points of task %s have none; set {Model.Kind} to %s, or leave it out", m.Kind, c.Task, model.Encoder)
	}
	return nil
}
