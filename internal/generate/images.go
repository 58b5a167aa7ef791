package generate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farfield-ml/farfield/internal/losses"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// DecodeMode says how the model computes the next level of an image.
type DecodeMode string

const (
	// ModeRecompute runs the model over all levels drawn so far, for each new level.
	ModeRecompute DecodeMode = "recompute"
	// ModeCache keeps a KV cache of all levels drawn so far, for mechanisms that do not stream.
	ModeCache DecodeMode = "cache"
	// ModeState keeps a recurrent state of fixed size, for mechanisms that stream.
	ModeState DecodeMode = "state"
)

// ImageShape is the shape of an image. Levels are ordered [Height][Width][Channels].
type ImageShape struct{ Height, Width, Channels int }

// Size returns the number of levels.
func (s ImageShape) Size() int { return s.Height * s.Width * s.Channels }

// SquareShape returns the shape of the square image, grey or with three channels, that has the
// given number of levels. There is at most one, since no number is both a square and three times a
// square. SquareShape returns an error if there is none.
func SquareShape(levels int) (ImageShape, error) {
	for _, channels := range []int{1, 3} {
		side := int(math.Sqrt(float64(levels/channels)) + 0.5)
		if s := (ImageShape{side, side, channels}); levels > 0 && s.Size() == levels {
			return s, nil
		}
	}
	return ImageShape{}, fmt.Errorf("images: %d levels are no square, neither in grey nor in colour", levels)
}

// ImageOptions says which images to draw with a model of levels. The model is a decoder of tokens 0
// ≤ t ≤ losses.Levels: the last token begins an image, the others are levels. Its outputs are mixtures
// of logistics, or logits of the levels.
type ImageOptions struct {
	ImageShape
	Count  int
	Batch  int        // images drawn at a time; 0: up to 192, within a gigabyte
	Mode   DecodeMode // "": ModeState if the mechanism streams, otherwise ModeCache
	Prefix []byte     // first levels of every image
	Seed   uint64     // level j of image i depends on Seed, i, j and earlier levels

	// Progress is called after each step of a part of the images, by one goroutine at a time, with
	// the number of levels drawn. It may be nil.
	Progress func(done, all int64)
}

const (
	imageBatch = 192
	imageBytes = 1 << 30
)

// DrawStats holds the cost of drawing. It does not count the preparation that all batches share, or
// emit.
type DrawStats struct {
	Mode            DecodeMode `json:"way"`
	Images          int        `json:"images"`
	Batch           int        `json:"batch"`
	Seconds         float64    `json:"seconds"`
	ImagesPerSecond float64    `json:"images_per_s"`
	StateBytes      int64      `json:"state_bytes"` // largest size of the sessions that exist at one time
}

// DrawImages draws images and calls emit with each, in order, when its batch is done. A batch with
// at least 12 images for each thread is drawn in parallel parts, each from its first level to its
// last. For fewer images, and with ModeRecompute, the threads share the work of each layer. The
// images do not depend on the batch or on the number of threads. DrawImages returns an error if the
// options do not fit the model, or if emit or ctx returns one.
func DrawImages(ctx context.Context, m *model.Model, d ImageOptions, emit func(i int, levels []byte) error) (DrawStats, error) {
	a, err := NewImageGenerator(m, d)
	if err != nil {
		return DrawStats{Mode: d.Mode}, err
	}
	return a.Draw(ctx, emit)
}

// ImageGenerator draws images. It keeps its sessions for the next batch and the next call of Draw,
// so the model must not change meanwhile. Its methods must not be called concurrently.
type ImageGenerator struct {
	model   *model.Model
	options ImageOptions
	key     rng.Key
	parts   []imagePart // parts of a full batch

	stateBytes int64       // size of the sessions in bytes
	failed     atomic.Bool // set when a part of the batch fails

	mu         sync.Mutex
	levelsDone int64 // number of levels drawn
}

// NewImageGenerator returns a generator that draws the images d with the model m. It returns an
// error if d does not fit the model.
func NewImageGenerator(m *model.Model, d ImageOptions) (*ImageGenerator, error) {
	if err := d.validate(m); err != nil {
		return nil, err
	}
	if err := d.resolveDefaults(m); err != nil {
		return nil, err
	}
	d.Prefix = slices.Clone(d.Prefix)
	a := &ImageGenerator{model: m, options: d, key: rng.New(d.Seed)}
	var err error
	a.parts, err = a.openParts(d.Batch)
	return a, err
}

// Draw draws the images as DrawImages does. Each call draws the same images. It returns an error if
// emit or ctx returns one.
func (a *ImageGenerator) Draw(ctx context.Context, emit func(i int, levels []byte) error) (DrawStats, error) {
	d := &a.options
	drawn := DrawStats{Mode: d.Mode, Batch: d.Batch}
	a.levelsDone = 0
	a.failed.Store(false)
	for first := 0; first < d.Count; first += d.Batch {
		start := time.Now()
		batch, err := a.drawBatch(ctx, first, min(d.Batch, d.Count-first))
		drawn.StateBytes = max(drawn.StateBytes, a.stateBytes)
		if err != nil {
			return drawn, err
		}
		drawn.Seconds += time.Since(start).Seconds()
		for i, levels := range batch {
			if err := emit(first+i, levels); err != nil {
				return drawn, err
			}
			drawn.Images++
		}
		drawn.ImagesPerSecond = float64(drawn.Images) / drawn.Seconds
	}
	return drawn, nil
}

// validate returns an error for the first field that does not fit the model.
func (d *ImageOptions) validate(m *model.Model) error {
	if m == nil {
		return errNoModel
	}
	c := m.Config()
	size := tensor.Size(max(d.Height, 0), max(d.Width, 0), max(d.Channels, 0))
	switch {
	case !c.HasSessions():
		return fmt.Errorf("model: kind %s with these settings does not give one output after the other", c.Kind)
	case c.Vocab != losses.Levels+1:
		return fmt.Errorf("model: has %d tokens, images have %d levels and a beginning", c.Vocab, losses.Levels)
	case c.Loss == model.Squared || c.Loss == model.CrossEntropy && c.Outputs != losses.Levels:
		return fmt.Errorf("model: has %d outputs by loss %q, needs logits of %d levels or loss %s", c.Outputs, c.Loss, losses.Levels, model.Logistics)
	case d.Height < 1 || d.Width < 1 || d.Channels < 1 || size > 1<<24:
		return fmt.Errorf("images: %d×%d pixels of %d channels", d.Height, d.Width, d.Channels)
	case c.Positions == model.Learned && size > c.LearnedPositions():
		return fmt.Errorf("images: %d levels, the model learned %d positions", size, c.LearnedPositions())
	case d.Count < 1:
		return fmt.Errorf("images: %d, needs to be 1 or more", d.Count)
	case d.Batch < 0:
		return fmt.Errorf("batch: %d is negative", d.Batch)
	case len(d.Prefix) > size:
		return fmt.Errorf("given: %d levels, an image has %d", len(d.Prefix), size)
	}
	return nil
}

// resolveDefaults chooses the mode and the batch if they are not given.
func (d *ImageOptions) resolveDefaults(m *model.Model) error {
	c := m.Config()
	isFixed, err := c.HasFixedState()
	if err != nil {
		return err
	}
	natural := ModeCache
	if isFixed {
		natural = ModeState
	}
	switch d.Mode {
	case "":
		d.Mode = natural
	case ModeRecompute, natural:
	case ModeCache, ModeState:
		return fmt.Errorf("way: %s, but %s has %s, or %s", d.Mode, c.Mechanism, natural, ModeRecompute)
	default:
		return fmt.Errorf("way: %q is none of %s, %s, %s", d.Mode, ModeRecompute, ModeCache, ModeState)
	}
	if d.Batch == 0 {
		// A bound on the memory of an image: 16 widths for each layer and level.
		each := 4 * int64(c.Layers) * 16 * int64(c.Width)
		switch d.Mode {
		case ModeState:
			s, err := m.NewSession(1)
			if err != nil {
				return err
			}
			each = s.Bytes()
		case ModeCache:
			each = 4 * int64(c.Layers) * 2 * int64(c.Width) * int64(d.Size())
		case ModeRecompute:
			each = 4 * 16 * int64(c.Width) * int64(d.Size())
		}
		d.Batch = int(min(imageBatch, max(1, imageBytes/max(each, 1))))
	}
	d.Batch = min(d.Batch, d.Count)
	return nil
}

// Bounds on the images of a part. On one core 12 images reach 0.9 of the rate of many,
// since they fill a tile of products; 8 images reach 0.63. Beyond 96, eight tiles, the
// states of a head no longer fit the second-level cache.
const (
	maxPartImages = 96
	minPartImages = 12
)

// countParts returns the number of parts for n images on a number of threads. If there are enough
// images, all threads draw the same number of parts: a part stays on one core with its rows in that
// core's caches, and no part waits for another at each layer. Fewer images form one part, whose
// layers the threads share.
func countParts(n, threads int) int {
	each := (n + threads*maxPartImages - 1) / (threads * maxPartImages)
	if count := threads * each; threads > 1 && n >= count*minPartImages {
		return count
	}
	return 1
}

// openParts returns the parts of a batch of n images.
func (a *ImageGenerator) openParts(n int) ([]imagePart, error) {
	count := 1
	if a.options.Mode != ModeRecompute { // the model has memory for one pass
		count = countParts(n, par.Threads())
	}
	list := make([]imagePart, count)
	for i := range list {
		p := &list[i]
		lo, hi := i*n/count, (i+1)*n/count
		p.ImageGenerator, p.firstImage, p.count = a, lo, hi-lo
		if err := p.openSession(list[:i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// drawBatch draws n images, beginning with image first, in parts.
func (a *ImageGenerator) drawBatch(ctx context.Context, first, n int) ([][]byte, error) {
	list := a.parts
	if n != a.options.Batch {
		var err error
		if list, err = a.openParts(n); err != nil {
			return nil, err
		}
	}
	par.RunParts(len(list), func(i int) { list[i].drawPart(ctx, first) })
	var images [][]byte
	a.stateBytes = 0
	for i := range list {
		p := &list[i]
		if p.err != nil {
			return nil, p.err
		}
		images = append(images, p.images...)
		if p.session != nil {
			a.stateBytes += p.session.Bytes()
		}
	}
	return images, nil
}

// reportProgress counts n more levels.
func (a *ImageGenerator) reportProgress(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.levelsDone += int64(n); a.options.Progress != nil {
		a.options.Progress(a.levelsDone, int64(a.options.Count)*int64(a.options.Size()-len(a.options.Prefix)))
	}
}

// imagePart is a part of the images of a batch, with its session.
type imagePart struct {
	*ImageGenerator
	firstImage, count int // images, counted in the batch
	session           *model.Session
	sampler           *Sampler // nil: mixtures
	outputs           []float32
	images            [][]byte
	err               error
}

// openSession makes the session and the sampler. Sessions of one size share packed
// weights.
func (p *imagePart) openSession(before []imagePart) (err error) {
	if p.model.Config().Loss == model.CrossEntropy {
		if p.sampler, err = NewSampler(Sampling{Temperature: 1, Seed: p.options.Seed}, losses.Levels); err != nil {
			return err
		}
	}
	if p.options.Mode == ModeRecompute {
		return nil
	}
	if i := slices.IndexFunc(before, func(q imagePart) bool { return q.count == p.count }); i >= 0 {
		p.session = before[i].session.Clone()
		return nil
	}
	p.session, err = p.model.NewSession(p.count)
	return err
}

// drawPart draws all levels of its images in the batch that begins with image first. It
// stops early if another part fails.
func (p *imagePart) drawPart(ctx context.Context, first int) {
	whole := false
	defer func() {
		if !whole { // an error or a panic
			p.failed.Store(true)
		}
	}()
	p.err = p.drawLevels(ctx, first+p.firstImage)
	whole = p.err == nil
}

// drawLevels draws all levels of the images from first on.
func (p *imagePart) drawLevels(ctx context.Context, first int) error {
	d, n := &p.options, p.count
	if p.session != nil {
		p.session.Reset()
	}
	size, given := d.Size(), len(d.Prefix)
	p.images = make([][]byte, n)
	tokens, spare := make([]int32, n*(given+1), n*(size+1)), make([]int32, 0, n*(size+1))
	for i := range p.images {
		p.images[i] = append(make([]byte, 0, size), d.Prefix...)
		row := tokens[i*(given+1):]
		row[0] = losses.Levels
		for j, x := range d.Prefix {
			row[j+1] = int32(x)
		}
	}
	for at := given; at < size && !p.failed.Load(); at++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		outputs, err := p.nextOutputs(ctx, tokens)
		if err != nil {
			return err
		}
		each := len(outputs) / n
		following := spare[:0]
		for i := range p.images {
			level, err := p.drawLevel(outputs[i*each:][:each], first+i, at)
			if err != nil {
				return err
			}
			p.images[i] = append(p.images[i], byte(level))
			if p.session == nil {
				following = append(following, tokens[i*(at+1):][:at+1]...)
			}
			following = append(following, level)
		}
		tokens, spare = following, tokens
		p.reportProgress(n)
	}
	return nil
}

// nextOutputs returns the outputs after the last token of each image, [images, outputs].
// With a session tokens holds only the new tokens, otherwise all tokens.
func (p *imagePart) nextOutputs(ctx context.Context, tokens []int32) ([]float32, error) {
	n := p.count
	each := len(tokens) / n
	if p.session != nil {
		return p.session.Step(ctx, tokens, each)
	}
	c := p.model.Config()
	width := c.Outputs
	if need := len(tokens) * width; cap(p.outputs) < need {
		p.outputs = make([]float32, n*p.options.Size()*width)
	}
	all := p.outputs[:len(tokens)*width]
	if err := p.model.Logits(ctx, &model.Batch{B: n, N: each, Tokens: tokens}, all); err != nil {
		return nil, err
	}
	for i := range n {
		copy(all[i*width:][:width], all[((i+1)*each-1)*width:])
	}
	return all[:n*width], nil
}

// drawLevel draws level at of image i from its outputs.
func (p *imagePart) drawLevel(outputs []float32, i, at int) (int32, error) {
	number := uint64(i)*uint64(p.options.Size()) + uint64(at)
	if p.sampler != nil {
		return p.sampler.DrawToken(outputs, number)
	}
	return losses.SampleLogistics(outputs, p.key, number), nil
}
