package generate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/rng"
)

// Way is how a model is asked for the next level of an image.
type Way string

const (
	// Recompute runs the model over the whole image so far for each level.
	Recompute Way = "recompute"
	// Cached keeps keys and values of all levels so far: of mechanisms that do not
	// stream.
	Cached Way = "cache"
	// Stateful keeps a state of fixed size: of mechanisms that stream.
	Stateful Way = "state"
)

// Shape is that of an image: levels go row by row, those of a pixel beside each other.
type Shape struct{ Height, Width, Channels int }

// Size is the number of levels.
func (s Shape) Size() int { return s.Height * s.Width * s.Channels }

// ShapeOf returns the shape of square images of so many levels, in grey or in colour:
// no number is both a square and three times one.
func ShapeOf(levels int) (Shape, error) {
	for _, channels := range []int{1, 3} {
		side := int(math.Sqrt(float64(levels/channels)) + 0.5)
		if s := (Shape{side, side, channels}); levels > 0 && s.Size() == levels {
			return s, nil
		}
	}
	return Shape{}, fmt.Errorf("images: %d levels are no square, neither in grey nor in colour", levels)
}

// Images says which images are drawn with a model of levels: a decoder of tokens
// 0 ≤ t ≤ nn.Levels, of which the last begins an image, and of the others each stands
// for a level. Its outputs are mixtures of logistics, or logits of the levels.
type Images struct {
	Shape
	Count int
	Batch int    // that are drawn at a time; 0: up to 128, as many as find room in a gigabyte
	Way   Way    // "": Cached or Stateful, as the mechanism has it
	Given []byte // levels that every image begins with
	Seed  uint64 // level j of image i is a function of it, i, j and the levels before

	// Show is told after each step how many levels of all that are to be drawn there
	// are; nil: nobody is.
	Show func(done, all int64)
}

const (
	imageBatch = 128
	imageBytes = 1 << 30
)

// Drawn is what drawing took.
type Drawn struct {
	Way     Way     `json:"way"`
	Images  int     `json:"images"`
	Batch   int     `json:"batch"`
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"images_per_s"`
	State   int64   `json:"state_bytes"` // most that was remembered at one time
}

// Draw draws images and calls emit with each, in their order, as soon as its batch is
// there. An error of emit or of ctx ends it.
func Draw(ctx context.Context, m *model.Model[float32], d Images, emit func(i int, levels []byte) error) (Drawn, error) {
	drawn := Drawn{Way: d.Way}
	if err := d.check(m); err != nil {
		return drawn, err
	}
	if err := d.settle(m); err != nil {
		return drawn, err
	}
	drawn.Way, drawn.Batch = d.Way, d.Batch
	a := artist{m: m, d: &d, key: rng.New(d.Seed)}
	if m.Config().Loss == model.CrossEntropy {
		var err error
		if a.sampler, err = NewSampler(Sampling{Temperature: 1, Seed: d.Seed}, nn.Levels); err != nil {
			return drawn, err
		}
	}
	start := time.Now()
	for first := 0; first < d.Count; first += d.Batch {
		batch, err := a.batch(ctx, first, min(d.Batch, d.Count-first))
		drawn.State = max(drawn.State, a.state)
		if err != nil {
			return drawn, err
		}
		drawn.Seconds = time.Since(start).Seconds()
		for i, levels := range batch {
			if err := emit(first+i, levels); err != nil {
				return drawn, err
			}
			drawn.Images++
		}
		drawn.Rate = float64(drawn.Images) / drawn.Seconds
	}
	return drawn, nil
}

// check reports what does not fit.
func (d *Images) check(m *model.Model[float32]) error {
	c := m.Config()
	size := d.Size()
	switch {
	case !c.Decodes():
		return fmt.Errorf("model: kind %s with these settings does not give one output after the other", c.Kind)
	case c.Vocab != nn.Levels+1:
		return fmt.Errorf("model: has %d tokens, images have %d levels and a beginning", c.Vocab, nn.Levels)
	case c.Loss == model.Squared || c.Loss == model.CrossEntropy && c.Outputs != nn.Levels:
		return fmt.Errorf("model: has %d outputs by loss %q, needs logits of %d levels or loss %s", c.Outputs, c.Loss, nn.Levels, model.Logistics)
	case d.Height < 1 || d.Width < 1 || d.Channels < 1 || size > 1<<24:
		return fmt.Errorf("images: %d×%d pixels of %d channels", d.Height, d.Width, d.Channels)
	case c.Positions == model.Learned && size > c.Context:
		return fmt.Errorf("images: %d levels, the model learned %d positions", size, c.Context)
	case d.Count < 1:
		return fmt.Errorf("images: %d, needs to be 1 or more", d.Count)
	case d.Batch < 0:
		return fmt.Errorf("batch: %d is negative", d.Batch)
	case len(d.Given) > size:
		return fmt.Errorf("given: %d levels, an image has %d", len(d.Given), size)
	}
	return nil
}

// settle decides what was left open.
func (d *Images) settle(m *model.Model[float32]) error {
	c := m.Config()
	mixer, err := c.Mixer()
	if err != nil {
		return err
	}
	natural := Cached
	if mixer.Traits().Streaming {
		natural = Stateful
	}
	switch d.Way {
	case "":
		d.Way = natural
	case Recompute, natural:
	case Cached, Stateful:
		return fmt.Errorf("way: %s, but %s has %s, or %s", d.Way, c.Mechanism, natural, Recompute)
	default:
		return fmt.Errorf("way: %q is none of %s, %s, %s", d.Way, Recompute, Cached, Stateful)
	}
	if d.Batch == 0 {
		// Keys and values, or the rows of a pass: 16 widths a layer and level do.
		each := 4 * int64(c.Layers) * 16 * int64(c.Width)
		switch d.Way {
		case Stateful:
			s, err := m.NewSession(1)
			if err != nil {
				return err
			}
			each = s.Bytes()
		case Cached:
			each = 4 * int64(c.Layers) * 2 * int64(c.Width) * int64(d.Size())
		case Recompute:
			each = 4 * 16 * int64(c.Width) * int64(d.Size())
		}
		d.Batch = int(min(imageBatch, max(1, imageBytes/max(each, 1))))
	}
	d.Batch = min(d.Batch, d.Count)
	return nil
}

// artist draws batches.
type artist struct {
	m       *model.Model[float32]
	d       *Images
	key     rng.Key
	sampler *Sampler // nil: mixtures
	outputs []float32
	state   int64 // bytes
	done    int64 // levels
}

// batch draws n images from number first on.
func (a *artist) batch(ctx context.Context, first, n int) ([][]byte, error) {
	size := a.d.Size()
	images := make([][]byte, n)
	tokens, spare := make([]int32, n*(len(a.d.Given)+1), n*size), make([]int32, 0, n*size)
	for i := range images {
		images[i] = append(make([]byte, 0, size), a.d.Given...)
		row := tokens[i*(len(a.d.Given)+1):]
		row[0] = nn.Levels
		for j, x := range a.d.Given {
			row[j+1] = int32(x)
		}
	}
	var session *model.Session[float32]
	if a.d.Way != Recompute {
		var err error
		if session, err = a.m.NewSession(n); err != nil {
			return nil, err
		}
	}
	for at := len(a.d.Given); at < size; at++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		outputs, err := a.next(session, tokens, n)
		if err != nil {
			return nil, err
		}
		each := len(outputs) / n
		following := spare[:0]
		for i := range images {
			level, err := a.level(outputs[i*each:][:each], first+i, at)
			if err != nil {
				return nil, err
			}
			images[i] = append(images[i], byte(level))
			if session == nil {
				following = append(following, tokens[i*(at+1):][:at+1]...)
			}
			following = append(following, level)
		}
		tokens, spare = following, tokens
		if a.done += int64(n); a.d.Show != nil {
			a.d.Show(a.done, int64(a.d.Count)*int64(size-len(a.d.Given)))
		}
	}
	if session != nil {
		a.state = session.Bytes()
	}
	return images, nil
}

// next returns the outputs after the last token of each of n images: with a session
// of the tokens that it has not seen, else of all.
func (a *artist) next(session *model.Session[float32], tokens []int32, n int) ([]float32, error) {
	each := len(tokens) / n
	if session != nil {
		return session.Step(tokens, each)
	}
	c := a.m.Config()
	width := c.Outputs
	if need := len(tokens) * width; cap(a.outputs) < need {
		a.outputs = make([]float32, n*a.d.Size()*width)
	}
	all := a.outputs[:len(tokens)*width]
	if err := a.m.Logits(&model.Batch{B: n, N: each, Tokens: tokens}, all); err != nil {
		return nil, err
	}
	for i := range n {
		copy(all[i*width:][:width], all[((i+1)*each-1)*width:])
	}
	return all[:n*width], nil
}

// level draws level at of image i.
func (a *artist) level(outputs []float32, i, at int) (int32, error) {
	number := uint64(i)*uint64(a.d.Size()) + uint64(at)
	if a.sampler != nil {
		return a.sampler.Next(outputs, number)
	}
	return nn.SampleLogistics(outputs, a.key, number), nil
}
