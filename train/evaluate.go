package train

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/task"
)

// Score is how well a model does a task.
type Score struct {
	Loss    float64     `json:"loss"`   // mean over targets of what the model is taught by: nats, or squares
	Metric  task.Metric `json:"metric"` // the task's
	Value   float64     `json:"score"`  // by that
	Bits    float64     `json:"bits_per_byte,omitempty"`
	Samples int64       `json:"samples"`
	Tokens  int64       `json:"tokens"`          // targets that are counted
	Bytes   int64       `json:"bytes,omitempty"` // of text that these stand for
}

// Detail is where a Score comes from.
type Detail struct {
	// Of a task that is judged by nats, by position.
	Positions []Bucket `json:"by_position,omitempty"`
	// Of a task of no more than 32 classes, how many targets of the class that is the
	// row the model took for the one that is the column.
	Confusion [][]int64 `json:"confusion,omitempty"`
}

// Bucket is the loss of tokens that have First to Last tokens before them, of
// which they see all.
type Bucket struct {
	First  int     `json:"first"`
	Last   int     `json:"last"`
	Loss   float64 `json:"loss"` // mean nats of a token
	Tokens int64   `json:"tokens"`
}

const (
	// evalTokens is the number of positions that are evaluated at a time: products are
	// as fast as with more, and a small model needs no more memory than an update of
	// it. evalSegment is that of a longer sequence, evalOutputs the number of outputs.
	evalTokens  = 1 << 11
	evalSegment = 1 << 13
	evalOutputs = 1 << 22
	// endlessSamples is how many samples of a split without end are all of it.
	endlessSamples = 1000
	// maxConfusionClasses is the largest number of classes that are told apart in a Detail.
	maxConfusionClasses = 32
)

// Evaluate returns how well m does a split of the task src. Config.PrepareTask gives src
// as the model learned it. With a limit above 0, that many samples are taken, always
// the same: of a text windows that are spread evenly, of other tasks samples from
// anywhere, and of a split without end the first, of which 1000 are all. A context
// that ends returns its error.
//
// The windows of a text follow each other and each begins anew, so that every token
// but the first is predicted once.
func Evaluate(ctx context.Context, m *model.Model[float32], src task.Source, split task.Split, limit int) (Score, Detail, error) {
	return Job{}.Evaluate(ctx, m, src, split, limit)
}

// Evaluate is the function Evaluate for the ranks of a job, which have the same model.
func (j Job) Evaluate(ctx context.Context, m *model.Model[float32], src task.Source, split task.Split, limit int) (Score, Detail, error) {
	fail := func(err error) (Score, Detail, error) { return Score{}, Detail{}, err }
	spec, c := src.Spec(), m.Config()
	if spec.Vocab != c.Vocab || spec.Channels != c.Inputs {
		return fail(fmt.Errorf("task %s: its positions have %d tokens or %d numbers, the model's %d or %d", spec.Name, spec.Vocab, spec.Channels, c.Vocab, c.Inputs))
	}
	count := spec.Count[split]
	chosen := count
	switch {
	case count == task.Endless && limit > 0:
		count, chosen = limit, limit
	case count == task.Endless:
		count, chosen = endlessSamples, endlessSamples
	case count == 0:
		return fail(fmt.Errorf("task %s: the split %v has no samples", spec.Name, split))
	case limit > 0:
		chosen = min(count, limit)
	}
	_, windows := src.(task.WindowSource)
	number := func(i int) int {
		switch {
		case chosen == count:
			return i
		case windows:
			return i * count / chosen
		}
		// Samples may come in the order of their classes.
		return rng.New(0).Permute(i, count)
	}
	e := newEvaluation(m, src)
	// Samples that go at a time are added up alone, and then in their order, whichever
	// rank has them.
	err := func() error {
		first, last := j.rankRange((chosen + e.rows - 1) / e.rows)
		for i := first * e.rows; i < min(last*e.rows, chosen); i += e.rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			samples := e.sampleBuffer(min(e.rows, chosen-i))
			for k := range samples {
				if err := src.Sample(&samples[k], split, number(i+k)); err != nil {
					return err
				}
			}
			if err := e.addSamples(ctx, samples); err != nil {
				return err
			}
			e.closePart()
		}
		return nil
	}()
	if err = j.syncError(err); err != nil {
		return fail(err)
	}
	if err := e.gatherRanks(j.Ranks); err != nil {
		return fail(err)
	}
	score, detail := e.summarise()
	return score, detail, nil
}

// evaluation adds up what a model makes of samples.
type evaluation struct {
	collector
	model   *model.Model[float32]
	text    *task.Text // nil: no text
	rows    int        // samples at a time
	outputs int        // numbers that the model says for a target
	batch   packedBatch
	losses  []float64
	logits  []float32

	samples, bytes int64
	counted        int64
	lossSum        float64 // sum over targets
	valueSum       float64 // sum, of what the metric is the mean of
	squareCount    int64   // that squares are summed over

	// Losses by position: bucket k is of positions p with 2ᵏ ≤ p+1 < 2ᵏ⁺¹.
	bucketLosses []float64
	bucketCounts []int64
	lastPosition int // position
	confusion    [][]int64

	parts []float64 // loss, value and sums of each time that add was called
}

func newEvaluation(m *model.Model[float32], src task.Source) *evaluation {
	spec := src.Spec()
	e := &evaluation{collector: collector{spec: spec}, model: m, outputs: max(spec.Classes, spec.Outputs)}
	e.text, _ = src.(*task.Text)
	e.rows = evalTokens / spec.Length
	switch {
	case spec.Metric == task.Nats || spec.Metric == task.Bits:
		n := bits.Len(uint(spec.Length))
		e.bucketLosses, e.bucketCounts = make([]float64, n), make([]int64, n)
	case spec.Kind == task.Class || spec.Kind == task.Regression:
	default:
		e.rows = min(e.rows, evalOutputs/(spec.Length*e.outputs))
	}
	e.rows = max(e.rows, 1)
	if spec.Metric == task.Accuracy && spec.Classes <= maxConfusionClasses {
		for range spec.Classes {
			e.confusion = append(e.confusion, make([]int64, spec.Classes))
		}
	}
	return e
}

func (e *evaluation) addSamples(ctx context.Context, samples []task.Sample) error {
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
	if err := e.model.Logits(&b.Batch, e.logits); err != nil {
		return err
	}
	if len(b.Numbers) > 0 {
		e.addSquares(b)
	} else {
		e.addClasses(b)
	}
	return nil
}

// addLosses adds nats by position. Long sequences go in segments where they can.
func (e *evaluation) addLosses(ctx context.Context, b *packedBatch) error {
	e.losses = resize(e.losses, b.B*b.N)
	losses := func() error { return e.model.Losses(&b.Batch, e.losses) }
	if b.N > evalSegment && e.model.CanSegment(evalSegment) == nil {
		losses = func() error {
			return e.model.SegmentLosses(&b.Batch, evalSegment, e.losses, func(int, int) error { return ctx.Err() })
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

// addClasses adds what the largest output says, and its nats.
func (e *evaluation) addClasses(b *packedBatch) {
	for i, y := range b.Targets {
		if y < 0 {
			continue
		}
		row := e.logits[i*e.outputs:][:e.outputs]
		said := largestIndex(row)
		sum := 0.
		for _, x := range row {
			sum += math.Exp(float64(x) - float64(row[said]))
		}
		e.lossSum += math.Log(sum) + float64(row[said]) - float64(row[y])
		if said == int(y) {
			e.valueSum++
		}
		if e.confusion != nil {
			e.confusion[y][said]++
		}
	}
}

// addSquares adds the squares of differences, and of each row their mean, which is
// what the model is taught by.
func (e *evaluation) addSquares(b *packedBatch) {
	for i := 0; i < len(b.Numbers); i += e.outputs {
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
		}
	}
}

// closePart sets the sums since it was called before aside.
func (e *evaluation) closePart() {
	e.parts = append(append(e.parts, e.lossSum, e.valueSum), e.bucketLosses...)
	e.lossSum, e.valueSum = 0, 0
	clear(e.bucketLosses)
}

// gatherRanks makes the sums and counts those of all ranks.
func (e *evaluation) gatherRanks(c *comm.Comm) error {
	parts, err := comm.AllGather(c, e.parts)
	if err != nil {
		return err
	}
	for _, of := range parts {
		for ; len(of) > 0; of = of[2+len(e.bucketLosses):] {
			e.lossSum += of[0]
			e.valueSum += of[1]
			for k, x := range of[2:][:len(e.bucketLosses)] {
				e.bucketLosses[k] += x
			}
		}
	}
	whole := []*int64{&e.samples, &e.bytes, &e.counted, &e.squareCount}
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
	case task.Nats:
		s.Value = s.Loss
	case task.Bits:
		s.Value = s.Loss / math.Ln2
	case task.MSE:
		s.Value = e.valueSum / float64(e.squareCount)
	default:
		s.Value = e.valueSum / n
	}
	if e.bytes > 0 {
		s.Bits = perByte(s.Loss, s.Tokens, s.Bytes)
	}
	return s, d
}

// resize returns n elements, in the memory of list if it has as many.
func resize[T any](list []T, n int) []T {
	if cap(list) < n {
		return make([]T, n)
	}
	return list[:n]
}
