package train

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/internal/logistic"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/train/data"
)

// mostFrozenTexts is the largest training set for which SuitsFreeze recommends a frozen model.
const mostFrozenTexts = 5000

// SuitsFreeze reports whether a linear head on the frozen model is the better default for the
// classes of src. It is if the run starts from a published encoder and the training set is small.
func (c *Config) SuitsFreeze(src data.Source) bool {
	spec := src.Spec()
	n := spec.Count[data.Train]
	return c.Init != "" && c.Model.Kind == model.Encoder && published.IsFolder(c.Init) && spec.Kind == data.Class &&
		n != data.Endless && n <= mostFrozenTexts
}

// FreezeHead changes c, which StartFrom has returned, so that the run keeps the weights of the
// model. Such a run has one update, which computes the vector of each sample once and fits a linear
// head to the vectors: a multinomial logistic regression whose L2 penalty is chosen on the
// validation set. Vectors are pooled as the model's folder says, and not normalised. FreezeHead
// returns an error if there is no model to start from, or its folder cannot be read.
func (c *Config) FreezeHead() error {
	if c.Init == "" {
		return fieldErrorf("{Freeze}: there is no model to keep; name it by {Init}")
	}
	m := &c.Model
	switch {
	case published.IsFolder(c.Init):
		var err error
		if m.Pool, err = published.VectorPooling(c.Init); err != nil {
			return fieldErrorf("{Init}: %w", err)
		}
	default:
		m.Pool = cmp.Or(m.Pool, model.PoolMean)
	}
	biases := model.Biases{QKV: m.Bias, O: m.Bias, MLP: m.Bias, Norm: m.Bias}
	if m.Biases != nil {
		biases = *m.Biases
	}
	if !m.Bias || m.Biases != nil {
		biases.Head, biases.HeadHidden = true, false
		m.Biases = &biases
	}
	m.HeadHidden, m.HeadActivation, m.HeadNorm, m.Tied = 0, "", false, false
	c.Freeze, c.Adapters, c.GroupLengths = true, 0, false
	c.Batch, c.Accumulate, c.Steps, c.Epochs, c.WarmUp = 1, 1, 1, 0, 0
	c.EvalEvery, c.SaveEvery, c.Patience = 0, 0, 0
	return nil
}

// checkFreeze returns an error if c asks a frozen model for something that it cannot do.
func (c *Config) checkFreeze(spec data.Spec) error {
	switch {
	case !c.Freeze:
		return nil
	case c.Init == "":
		return fieldErrorf("{Freeze}: there is no model to keep; name it by {Init}")
	case spec.Kind != data.Class:
		return fieldErrorf("{Freeze}: task %s asks for %v; a frozen model says classes of samples, leave out {Freeze}", spec.Name, spec.Kind)
	case spec.Count[data.Train] == data.Endless:
		return fieldErrorf("{Freeze}: task %s draws samples without end; leave out {Freeze}", spec.Name)
	case c.Adapters > 0:
		return fieldErrorf("{Freeze}: the model is kept, but {Adapters} is %d; leave out one of them", c.Adapters)
	case c.Model.HeadHidden > 0:
		return fieldErrorf("{Freeze}: a linear head is fitted, but {Model.HeadHidden} is %d; leave out one of them", c.Model.HeadHidden)
	case c.Steps != 1 || len(c.Lengthened) > 0:
		return fieldErrorf("{Freeze}: a linear head is fitted in one update, {Steps} is %d; leave out {Steps}", c.Steps)
	}
	return nil
}

// HeadFit says how the head of a frozen model was fitted.
type HeadFit struct {
	Strength float64 `json:"c"`      // 1 / (penalty · samples), which other programs call C
	Samples  int     `json:"fitted"` // samples that the head was fitted to, Held among them
	Held     int     `json:"held"`   // validation samples by which the penalty was chosen
	Accuracy float64 `json:"held_accuracy,omitempty"`
	Loss     float64 `json:"held_loss,omitempty"` // loss on the Held samples of a head fitted to the others
}

// HeadFit returns how this Trainer fitted the head, or nil if it did not.
func (t *Trainer) HeadFit() *HeadFit { return t.headFit }

// headParams returns the weights of the head.
func headParams(m *model.Model) (*param.Set, error) {
	set := &param.Set{}
	for _, name := range []string{"head.weight", "head.bias"} {
		p, err := m.Params().Get(name)
		if err != nil {
			return nil, fieldErrorf("{Freeze}: %w", err)
		}
		set.Add(p)
	}
	return set, nil
}

// fitHead is the update of a frozen model. It fits the head to all samples but the judged ones. It
// returns the error of ctx and changes nothing if ctx ends.
func (t *Trainer) fitHead(ctx context.Context, o Observer) error {
	start := time.Now()
	spec := t.source.Spec()
	splits := []data.Split{data.Train}
	if spec.JudgedSplit() == data.Test {
		splits = append(splits, data.Valid)
	}
	x, classes, tokens, err := t.sampleVectors(ctx, splits, o)
	if err != nil {
		return err
	}
	held := logistic.HoldOut(classes[:spec.Count[data.Train]], 5)
	if n := spec.Count[data.Train]; n < len(classes) {
		held = held[:0]
		for i := n; i < len(classes); i++ {
			held = append(held, i)
		}
	}
	// A shift is the bias's, and a common scale gives penalties the same meaning for every model.
	shift, scale := x.Standardise()
	m, choice, err := logistic.FitBest(x, classes, spec.Classes, held)
	if err != nil {
		return wrapDiverged(1, err)
	}
	weights, bias := t.trained.All()[0], t.trained.All()[1]
	for c := range spec.Classes {
		b := m.Bias[c]
		for j, s := range shift {
			w := m.Weights[j*spec.Classes+c] / scale
			weights.Data[c*x.Cols+j] = float32(w)
			b -= w * s
		}
		bias.Data[c] = float32(b)
	}
	t.headFit = &HeadFit{Strength: 1 / choice.Penalty, Samples: len(classes), Held: len(held), Loss: choice.Loss}
	if len(held) > 0 {
		t.headFit.Accuracy = float64(choice.Right) / float64(len(held))
	}
	t.step++
	t.needsRow, t.needsLook, t.needsSave = true, true, true
	spent := time.Since(start)
	t.elapsed += spent
	t.row = Step{Step: t.step, Loss: m.Loss(x, classes), Speed: float64(tokens) / max(spent.Seconds(), 1e-9), Elapsed: t.elapsed.Seconds()}
	return nil
}

// lookAtHeldOut returns the evaluation of the samples that chose the penalty, if they are the
// validation set.
func (t *Trainer) lookAtHeldOut() (row Eval, ok bool) {
	f, spec := t.headFit, t.source.Spec()
	if f == nil || spec.JudgedSplit() == data.Valid || spec.Count[data.Valid] == 0 {
		return row, false
	}
	n := int64(f.Held)
	return Eval{Step: t.step, Eval: EvalLook, Split: data.Valid.String(), Elapsed: t.elapsed.Seconds(),
		Score: Score{Loss: f.Loss, Metric: spec.Metric, Value: f.Accuracy, Samples: n, Tokens: n}}, true
}

// sampleVectors returns the vectors and classes of the samples of splits, one split after another, and
// the number of their positions. Batches have samples of similar length.
func (t *Trainer) sampleVectors(ctx context.Context, splits []data.Split, o Observer) (x *logistic.Matrix, classes []int32, tokens int64, err error) {
	spec := t.source.Spec()
	lengths, _ := t.source.(data.LengthReporter)
	all, done := 0, 0
	for _, split := range splits {
		all += spec.Count[split]
	}
	e := collector{spec: spec}
	var batch packedBatch
	var rows, packed []float32
	width := 0
	for _, split := range splits {
		order := make([]int, spec.Count[split])
		for i := range order {
			order[i] = i
		}
		length := func(i int) int { return spec.Length }
		if lengths != nil {
			length = func(i int) int { return lengths.SampleLength(split, i) }
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(length(a), length(b)) })
		}
		base := len(classes)
		classes = append(classes, make([]int32, len(order))...)
		for at := 0; at < len(order); {
			if err := ctx.Err(); err != nil {
				return nil, nil, 0, err
			}
			end := at + 1
			for end < len(order) && (end+1-at)*max(length(order[end]), 1) <= evalTokens {
				end++
			}
			samples := e.sampleBuffer(end - at)
			for k := range samples {
				if err := t.source.Sample(&samples[k], split, order[at+k]); err != nil {
					return nil, nil, 0, batchError{err}
				}
				classes[base+order[at+k]] = samples[k].Class
				tokens += int64(e.countPositions(&samples[k]))
			}
			e.packBatch(&batch, samples)
			if packed, width, err = t.model.Vectors(ctx, packed[:0], &batch.Batch); err != nil {
				return nil, nil, 0, wrapDiverged(1, err)
			}
			rows = slices.Grow(rows, max(all*width-len(rows), 0))[:all*width]
			for k := range samples {
				copy(rows[(base+order[at+k])*width:][:width], packed[k*width:])
			}
			done += len(samples)
			if at = end; o.Progress != nil {
				o.Progress(done, all)
			}
		}
	}
	x = &logistic.Matrix{Cols: width}
	for row := range slices.Chunk(rows, max(width, 1)) {
		x.Add(nil, row)
	}
	return x, classes, tokens, nil
}
