package train

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/train/data"
)

// Score is the result of an evaluation.
type Score struct {
	Loss    float64     `json:"loss"`   // mean training loss over targets, in nats or squares
	Metric  data.Metric `json:"metric"` // metric of the task
	Value   float64     `json:"score"`  // value of Metric
	Bits    float64     `json:"bits_per_byte,omitempty"`
	Samples int64       `json:"samples"`
	Tokens  int64       `json:"tokens"`          // targets that were scored
	Bytes   int64       `json:"bytes,omitempty"` // bytes of text of these targets

	// Error is the standard error of Value. It is known for a mean squared error, and for an
	// accuracy whose samples have several targets, which may be right or wrong together. 0: not
	// known, for example below 20 samples.
	Error float64 `json:"standard_error,omitempty"`
}

// HasBits reports whether the score belongs to a text and so has Bits, even if they are 0. A stored
// score may lack Bytes.
func (s *Score) HasBits() bool { return s.Bytes > 0 || s.Bits > 0 }

// Detail is the breakdown of a Score.
type Detail struct {
	// Positions holds the loss by position, for tasks whose loss is in nats.
	Positions []Bucket `json:"by_position,omitempty"`
	// Confusion counts targets by class (row) and predicted class (column), for tasks of at most
	// 32 classes.
	Confusion [][]int64 `json:"confusion,omitempty"`
}

// Bucket holds the mean loss of the targets at positions First to Last of the samples, from
// 0. The target at position p is token p+1 of a text, or level p of a picture.
type Bucket struct {
	First  int     `json:"first"`
	Last   int     `json:"last"`
	Loss   float64 `json:"loss"` // mean nats of a token
	Tokens int64   `json:"tokens"`
}

const (
	// evalTokens is the number of positions of a batch: products gain no speed from
	// more. evalSegment is the segment length of a longer sequence. evalOutputs bounds
	// the outputs of a batch.
	evalTokens  = 1 << 11
	evalSegment = 1 << 13
	evalOutputs = 1 << 22
	// endlessSamples is the default number of samples of an endless split.
	endlessSamples = 1000
	// leastErrorSamples is the least number of samples whose sums tell their error.
	leastErrorSamples = 20
	// maxConfusionClasses is the largest number of classes with a confusion matrix.
	maxConfusionClasses = 32
)

// Evaluate scores m on a split of the task src, which PrepareTask has returned. A limit above 0
// bounds the number of samples, which are always the same: windows spread evenly over a text, or a
// fixed random choice of other samples. From an endless split the first limit samples are scored,
// or 1000 without a limit. The windows of a text follow each other, or overlap if the text has a
// stride, and each starts a new sequence. Every token but the first is predicted once. Evaluate
// returns an error if the model does not fit the task, if the split has no samples or only ignored
// targets, if a sample does not fit the specification, or if ctx ends.
func Evaluate(ctx context.Context, m *model.Model, src data.Source, split data.Split, limit int) (Score, Detail, error) {
	return Job{}.Evaluate(ctx, m, src, split, limit)
}

// Evaluate is the function Evaluate for the ranks of a job, which all hold the same model. If one
// rank has an error, every rank returns one.
func (j Job) Evaluate(ctx context.Context, m *model.Model, src data.Source, split data.Split, limit int) (Score, Detail, error) {
	fail := func(err error) (Score, Detail, error) { return Score{}, Detail{}, err }
	spec, c := src.Spec(), m.Config()
	if err := spec.Check(); err != nil {
		return fail(err)
	}
	if split < data.Train || split > data.Test {
		return fail(fmt.Errorf("split: is %d, needs %d to %d", int(split), int(data.Train), int(data.Test)))
	}
	if spec.Vocab != c.Vocab || spec.Channels != c.Inputs {
		return fail(fmt.Errorf("task %s: its positions have %d tokens or %d numbers, the model's %d or %d", spec.Name, spec.Vocab, spec.Channels, c.Vocab, c.Inputs))
	}
	count := spec.Count[split]
	chosen := count
	switch {
	case count == data.Endless && limit > 0:
		count, chosen = limit, limit
	case count == data.Endless:
		count, chosen = endlessSamples, endlessSamples
	case count == 0:
		return fail(fmt.Errorf("task %s: the split %v has no samples", spec.Name, split))
	case limit > 0:
		chosen = min(count, limit)
	}
	_, windows := src.(data.WindowSource)
	number := func(i int) int {
		switch {
		case chosen == count:
			return i
		case windows:
			return i * count / chosen
		}
		// Samples may be sorted by class.
		return rng.New(0).Permute(i, count)
	}
	e := newEvaluation(m, src)
	// Each batch is summed by itself and batches are added in order, so that the bits
	// do not depend on the number of ranks.
	err := func() error {
		first, last := j.rankRange((chosen + e.rows - 1) / e.rows)
		from, to := first*e.rows, min(last*e.rows, chosen)
		for i := from; i < to; i += e.rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			samples := e.sampleBuffer(min(e.rows, chosen-i))
			for k := range samples {
				if err := src.Sample(&samples[k], split, number(i+k)); err != nil {
					return err
				}
				if err := spec.CheckSample(&samples[k]); err != nil {
					return fmt.Errorf("%v sample %d: %w", split, number(i+k), err)
				}
			}
			if err := e.addSamples(ctx, samples); err != nil {
				return err
			}
			e.closePart()
			if j.Progress != nil {
				j.Progress(min(i+e.rows, to)-from, to-from)
			}
		}
		return nil
	}()
	if err = j.syncError(err); err != nil {
		return fail(err)
	}
	if err := e.gatherRanks(j.Ranks); err != nil {
		return fail(err)
	}
	if e.counted == 0 {
		return fail(fmt.Errorf("task %s: the split %v has %d samples, and all their targets are ignored", spec.Name, split, e.samples))
	}
	score, detail := e.summarise()
	return score, detail, nil
}

// evaluation accumulates the scores of samples.
type evaluation struct {
	collector
	model   *model.Model
	text    *task.Text // nil: the task is not a text
	rows    int        // samples of a batch
	outputs int        // outputs of the model for a target
	batch   packedBatch
	losses  []float64
	logits  []float32

	samples, bytes int64
	counted        int64
	lossSum        float64 // sum over targets
	valueSum       float64 // sum whose mean is the metric
	squareCount    int64   // numbers in a sum of squares

	// Sums over samples whose squared errors have the sum s of n numbers: s² and s·n.
	errorSquares, errorProducts float64

	// Sums over samples with n targets or numbers and k right answers: k², k·n and n².
	rightSquares, rightProducts, countSquares int64

	// Losses by position: bucket k holds positions p with 2ᵏ ≤ p+1 < 2ᵏ⁺¹.
	bucketLosses []float64
	bucketCounts []int64
	lastPosition int // position
	confusion    [][]int64

	parts []float64 // sums of losses, values, squares of errors, and buckets of each batch
}

// newEvaluation returns an evaluation of m on the task src without samples.
func newEvaluation(m *model.Model, src data.Source) *evaluation {
	spec := src.Spec()
	e := &evaluation{collector: collector{spec: spec}, model: m, outputs: max(spec.Classes, spec.Outputs)}
	e.text, _ = src.(*task.Text)
	e.rows = evalTokens / spec.Length
	switch {
	case spec.Metric == data.Nats || spec.Metric == data.Bits:
		n := bits.Len(uint(spec.Length))
		e.bucketLosses, e.bucketCounts = make([]float64, n), make([]int64, n)
	case spec.Kind == data.Class || spec.Kind == data.Regression:
	default:
		e.rows = min(e.rows, evalOutputs/(spec.Length*e.outputs))
	}
	e.rows = max(e.rows, 1)
	if spec.Metric == data.Accuracy && spec.Classes <= maxConfusionClasses {
		for range spec.Classes {
			e.confusion = append(e.confusion, make([]int64, spec.Classes))
		}
	}
	return e
}

// addSamples adds the scores of a batch of samples.
func (e *evaluation) addSamples(ctx context.Context, samples []data.Sample) error {
	b := &e.batch
	e.packBatch(b, samples)
	e.samples += int64(len(samples))
	e.counted += int64(b.counted)
	if e.text != nil {
		e.bytes += e.text.Vocab.CountBytes(b.Targets)
	}
	if e.bucketLosses != nil {
		return e.addLosses(ctx, b)
	}
	rows := max(len(b.Targets), len(b.Numbers)/max(e.spec.Outputs, 1))
	e.logits = resize(e.logits, rows*e.outputs)
	if err := e.model.Logits(ctx, &b.Batch, e.logits); err != nil {
		return err
	}
	if len(b.Numbers) > 0 {
		e.addSquares(b)
	} else {
		e.addClasses(b)
	}
	return nil
}

// addLosses adds the losses of a batch by position. Long sequences pass through the model
// in segments where it supports them.
func (e *evaluation) addLosses(ctx context.Context, b *packedBatch) error {
	e.losses = resize(e.losses, b.B*b.N)
	losses := func() error { return e.model.Losses(ctx, &b.Batch, e.losses) }
	if b.N > evalSegment && e.model.CanSegment(evalSegment) == nil {
		losses = func() error {
			return e.model.SegmentLosses(ctx, &b.Batch, evalSegment, e.losses, func(int, int) error { return ctx.Err() })
		}
	}
	if err := losses(); err != nil {
		return err
	}
	for i, l := range e.losses {
		if i < len(b.Targets) && b.Targets[i] >= 0 || i < len(b.Numbers) && b.Numbers[i] == b.Numbers[i] {
			k := bits.Len(uint(i%b.N+1)) - 1
			e.bucketLosses[k] += l
			e.bucketCounts[k]++
		}
	}
	e.lastPosition = max(e.lastPosition, b.N-1)
	return nil
}

// addClasses adds accuracy, cross-entropy and confusion of a batch.
func (e *evaluation) addClasses(b *packedBatch) {
	rows := len(b.Targets) / (b.B / e.spec.Sequences()) // of a sample
	var right, count int64
	for i, y := range b.Targets {
		if i%rows == 0 {
			e.closeSample(&right, &count)
		}
		if y < 0 {
			continue
		}
		count++
		row := e.logits[i*e.outputs:][:e.outputs]
		said := largestIndex(row)
		sum := 0.
		for _, x := range row {
			sum += math.Exp(float64(x) - float64(row[said]))
		}
		e.lossSum += math.Log(sum) + float64(row[said]) - float64(row[y])
		if said == int(y) {
			e.valueSum++
			right++
		}
		if e.confusion != nil {
			e.confusion[y][said]++
		}
	}
	e.closeSample(&right, &count)
}

// closeSample adds the right targets of a sample and their number, and resets both.
func (e *evaluation) closeSample(right, count *int64) {
	e.rightSquares += *right * *right
	e.rightProducts += *right * *count
	e.countSquares += *count * *count
	*right, *count = 0, 0
}

// addSquares adds the squared errors of a batch, and per row their mean, which is the
// training loss.
func (e *evaluation) addSquares(b *packedBatch) {
	size := len(b.Numbers) / (b.B / e.spec.Sequences()) // of a sample
	var all float64                                     // of a sample
	var count int64
	end := func() {
		e.errorSquares += all * all
		e.errorProducts += all * float64(count)
		e.countSquares += count * count
		all, count = 0, 0
	}
	defer end()
	for i := 0; i < len(b.Numbers); i += e.outputs {
		if i%size == 0 {
			end()
		}
		sum, n := 0., 0
		for j, y := range b.Numbers[i:][:e.outputs] {
			if y == y {
				d := float64(e.logits[i+j]) - float64(y)
				sum += d * d
				n++
			}
		}
		if n > 0 {
			e.lossSum += sum / float64(n)
			e.valueSum += sum
			e.squareCount += int64(n)
			all += sum
			count += int64(n)
		}
	}
}

// closePart moves the sums of the current batch to parts.
func (e *evaluation) closePart() {
	e.parts = append(append(e.parts, e.lossSum, e.valueSum, e.errorSquares, e.errorProducts), e.bucketLosses...)
	e.lossSum, e.valueSum, e.errorSquares, e.errorProducts = 0, 0, 0, 0
	clear(e.bucketLosses)
}

// gatherRanks adds the sums and counts of all ranks.
func (e *evaluation) gatherRanks(c *comm.Comm) error {
	parts, err := comm.AllGather(c, e.parts)
	if err != nil {
		return err
	}
	for _, of := range parts {
		for ; len(of) > 0; of = of[4+len(e.bucketLosses):] {
			e.lossSum += of[0]
			e.valueSum += of[1]
			e.errorSquares += of[2]
			e.errorProducts += of[3]
			for k, x := range of[4:][:len(e.bucketLosses)] {
				e.bucketLosses[k] += x
			}
		}
	}
	whole := []*int64{&e.samples, &e.bytes, &e.counted, &e.squareCount, &e.rightSquares, &e.rightProducts, &e.countSquares}
	for k := range e.bucketCounts {
		whole = append(whole, &e.bucketCounts[k])
	}
	for _, row := range e.confusion {
		for k := range row {
			whole = append(whole, &row[k])
		}
	}
	own := []float64{float64(e.lastPosition)} // numbers far below 2⁵³
	for _, n := range whole {
		own = append(own, float64(*n))
		*n = 0
	}
	all, err := comm.AllGather(c, own)
	for _, of := range all {
		e.lastPosition = max(e.lastPosition, int(of[0]))
		for k, n := range of[1:] {
			*whole[k] += int64(n)
		}
	}
	return err
}

// summarise returns the score and its breakdown.
func (e *evaluation) summarise() (s Score, d Detail) {
	s = Score{Metric: e.spec.Metric, Samples: e.samples, Tokens: e.counted, Bytes: e.bytes}
	for k, sum := range e.bucketLosses {
		e.lossSum += sum
		if n := e.bucketCounts[k]; n > 0 {
			d.Positions = append(d.Positions, Bucket{First: 1<<k - 1, Last: min(1<<(k+1)-2, e.lastPosition), Loss: sum / float64(n), Tokens: n})
		}
	}
	n := float64(s.Tokens)
	s.Loss, d.Confusion = e.lossSum/n, e.confusion
	switch s.Metric {
	case data.Nats:
		s.Value = s.Loss
	case data.Bits:
		s.Value = s.Loss / math.Ln2
	case data.MSE:
		all := task.SquareSums{Sum: e.valueSum, Squares: e.errorSquares, Products: e.errorProducts,
			Samples: float64(e.samples), Counts: float64(e.squareCount), CountSquares: float64(e.countSquares)}
		s.Value, s.Error = all.Mean()
	default:
		s.Value = e.valueSum / n
		if s.Tokens > s.Samples {
			sum := float64(e.rightSquares) - 2*s.Value*float64(e.rightProducts) + s.Value*s.Value*float64(e.countSquares)
			if s.Samples >= leastErrorSamples && sum > 1e-9*float64(e.countSquares) { // not of rounding
				s.Error = math.Sqrt(sum*float64(s.Samples)/float64(s.Samples-1)) / n
			}
		}
	}
	if e.bytes > 0 {
		s.Bits = perByte(s.Loss, s.Tokens, s.Bytes)
	}
	return s, d
}

// resize returns list with n elements, reallocated if its capacity is smaller.
func resize[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	return list[:n]
}
