package reproduce

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var linearLatency = Row{
	Name:   "linear-latency",
	Doc:    "seconds to draw an image at batch 1 on the CPU in three ways, and images a second in batches; random weights",
	Source: "Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, appendix, table 5",
	Claim:  "on a CPU an image takes 72.6 s with softmax, 7.4 s with its cache and 5.5 s with linear attention (MNIST), 8651, 71.9 and 45.1 s (CIFAR-10)",
	pieces: latencyPieces, outcome: latencyOutcome,
}

// Ways to draw the next pixel.
const (
	recompute = "recompute" // softmax over all pixels so far, from the beginning
	cached    = "softmax, cache of keys and values"
	recurrent = "linear, state"
	quadratic = "fastmax 2, state"
)

// latencyPublished are seconds of an image by model and way.
var latencyPublished = map[string]map[string]float64{
	mnistPixels.Name: {recompute: 72.6, cached: 7.4, recurrent: 5.5},
	cifarPixels.Name: {recompute: 8651, cached: 71.9, recurrent: 45.1},
}

type latencyConfig struct {
	Model  pixelModel    `json:"model"`
	Batch  int           `json:"batch"`
	Ways   []string      `json:"ways"`
	Pixels int           `json:"pixels"` // that are drawn; from the others of a state the time is the same
	Probes int           `json:"probes"` // lengths at which recomputing is timed
	Each   time.Duration `json:"each"`
}

func (c *latencyConfig) name() string { return fmt.Sprintf("%s-batch-%d", c.Model.Name, c.Batch) }

const latencyBatch = 192

func latencyConfigs(o *Options) []latencyConfig {
	each := pick(o.Budget, time.Second, 20*time.Second, 2*time.Minute)
	probes := pick(o.Budget, 4, 8, 16)
	single := []string{recompute, cached, recurrent, quadratic}
	long := pick(o.Budget, single[:3], single, single)
	mnist, cifar := mnistPixels.Pixels, cifarPixels.Pixels
	return []latencyConfig{
		{mnistPixels, 1, single, mnist, probes, each},
		{cifarPixels, 1, long, cifar, probes, each},
		{mnistPixels, latencyBatch, []string{recurrent, quadratic}, mnist, 0, each},
		{cifarPixels, latencyBatch, []string{recurrent}, pick(o.Budget, 256, 512, cifar), 0, each},
	}
}

var latencyMethods = map[string]*method{recompute: &softmax, cached: &softmax, recurrent: &linear, quadratic: &fastmax2}

// tokenFLOPs counts the operations of a pixel of an image: what weights take, and
// attention over half of the pixels or to a state and from it. What the first layer
// projects is looked up where pixels come one by one.
func (p *pixelModel) tokenFLOPs(way string) float64 {
	const d = pixelWidth / pixelHeads
	layer := float64(8*pixelWidth*pixelWidth + 4*pixelWidth*pixelHidden)
	switch way {
	case recurrent:
		layer += 4 * d * (d + 1) * pixelHeads
	case quadratic:
		layer += float64(4 * binomial(d+2, 2) * (d + 1) * pixelHeads)
	default:
		layer += float64(2 * p.Pixels * pixelWidth)
	}
	all := float64(p.Layers) * layer
	if way != recompute {
		all -= 6 * pixelWidth * pixelWidth
	}
	return all
}

func latencyPieces(o *Options) (list []Piece, err error) {
	for _, c := range latencyConfigs(o) {
		flops := 0.0
		for _, way := range c.Ways {
			calls := 3 * float64(c.Batch*c.Pixels)
			if way == recompute {
				calls = 4 * float64(c.Model.Pixels*c.Probes) // lengths half as long in the mean, four calls or more
			}
			flops += calls * c.Model.tokenFLOPs(way)
		}
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: 2 * flops, run: func(w *Work) (any, error) { return c.run(w) }})
	}
	return list, nil
}

// run returns timings of images, or of the drawn pixels; for recomputing, timings of a pixel
// after N-1 others.
func (c *latencyConfig) run(w *Work) ([]timing, error) {
	var list []timed
	for _, way := range c.Ways {
		config := c.Model.config(latencyMethods[way])
		flops := float64(c.Batch) * c.Model.tokenFLOPs(way)
		if way != recompute {
			line := bench.Line{Mechanism: latencyMethods[way].Name, Direction: "forward", N: c.Pixels}
			list = append(list, timed{way, c.Pixels, bench.NewCase(line, float64(c.Pixels)*flops, 4*2*float64(config.Params()), func() (func() error, error) {
				return drawing(config, c.Batch, c.Pixels)
			})})
			continue
		}
		for i := 1; i <= c.Probes; i++ {
			n := c.Model.Pixels * i / c.Probes
			line := bench.Line{Mechanism: latencyMethods[way].Name, Direction: "forward", N: n}
			list = append(list, timed{way, n, bench.NewCase(line, float64(n)*flops, 4*float64(config.Params()), func() (func() error, error) {
				return recomputing(config, n)
			})})
		}
	}
	return w.race(list, c.Each, time.Hour)
}

// drawing returns a call that draws the first pixels of a batch of images.
func drawing(config model.Config, batch, pixels int) (func() error, error) {
	m, err := model.New(config, rng.New(1))
	if err != nil {
		return nil, err
	}
	a, err := generate.NewImageGenerator(m, generate.ImageOptions{ImageShape: generate.ImageShape{Height: 1, Width: pixels, Channels: 1}, Count: batch, Batch: batch, Seed: 1})
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := a.Draw(context.Background(), func(int, []byte) error { return nil })
		return err
	}, nil
}

// recomputing returns a call that finds pixel n from all before it.
func recomputing(config model.Config, n int) (func() error, error) {
	m, err := model.New(config, rng.New(1))
	if err != nil {
		return nil, err
	}
	b := &model.Batch{B: 1, N: n, Tokens: make([]int32, n)}
	for i := range b.Tokens {
		b.Tokens[i] = int32(rng.New(2).Intn(uint64(i), pixelLevels))
	}
	b.Tokens[0] = pixelLevels
	logits := make([]float32, n*config.Outputs)
	return func() error { return m.Logits(context.Background(), b, logits) }, nil
}

// image returns the seconds of an image by a way. For recomputing it sums over all lengths,
// straight between timed lengths.
func (c *latencyConfig) image(list []timing, way string) float64 {
	if way != recompute {
		if t, found := findTiming(list, way, c.Pixels); found {
			return t.Ms / 1e3 / float64(c.Batch) * float64(c.Model.Pixels) / float64(c.Pixels)
		}
		return math.NaN()
	}
	n, s := curve(list, way)
	if len(n) < 2 {
		return math.NaN()
	}
	sum, x, y := 0.0, 0.0, s[0]*n[0]/n[len(n)-1]
	for i := range n {
		sum += (n[i] - x) * (s[i] + y) / 2
		x, y = n[i], s[i]
	}
	return sum
}

func latencyOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	single := report.Table{
		Title: "Seconds of an image at batch 1 on the CPU", Head: []string{"way", "MNIST published", "here", "CIFAR-10 published", "here"},
		Note: "Recomputing is timed at a few lengths and summed over all; the others draw whole images with a session that is there. Published on a CPU that is not named.",
	}
	batches := report.Table{
		Title: fmt.Sprintf("Images a second in batches of %d", latencyBatch), Head: []string{"way", "MNIST", "CIFAR-10"},
		Note: "In float32, with sessions that are there. A state takes the same time for every pixel: of CIFAR-10 some are drawn but within the full budget.",
	}
	seconds := map[string]map[string]float64{}
	for _, c := range latencyConfigs(o) {
		list, found, err := get[[]timing](r, c.name())
		if err != nil {
			return nil, err
		}
		seconds[c.name()] = map[string]float64{}
		if !found {
			continue
		}
		for _, way := range c.Ways {
			seconds[c.name()][way] = c.image(list, way)
		}
	}
	cell := func(of map[string]float64, way string) string {
		if x, found := of[way]; found {
			return digits(x)
		}
		return none
	}
	configs := latencyConfigs(o)
	names := [4]string{}
	for i, c := range configs {
		names[i] = c.name()
	}
	any := false
	for _, way := range []string{recompute, cached, recurrent, quadratic} {
		a, b := seconds[names[0]], seconds[names[1]]
		any = any || len(a)+len(b) > 0
		addRow(&single, way, cell(latencyPublished[mnistPixels.Name], way), cell(a, way), cell(latencyPublished[cifarPixels.Name], way), cell(b, way))
	}
	for _, way := range []string{recurrent, quadratic} {
		rate := func(name string) map[string]float64 {
			if x, found := seconds[name][way]; found {
				return map[string]float64{way: 1 / x}
			}
			return nil
		}
		any = any || len(seconds[names[2]])+len(seconds[names[3]]) > 0
		addRow(&batches, way, cell(rate(names[2]), way), cell(rate(names[3]), way))
	}
	if !any {
		return out, nil
	}
	out.Tables = append(out.Tables, single, batches)
	for i, p := range []*pixelModel{&mnistPixels, &cifarPixels} {
		if x, found := seconds[names[i]][recurrent]; found {
			out.find("%s: an image takes %s s with linear attention at batch 1, %s times as fast as published; %s times as fast as with a cache, %s times as fast as recomputing.",
				p.Name, digits(x), digits(latencyPublished[p.Name][recurrent]/x), digits(seconds[names[i]][cached]/x), digits(seconds[names[i]][recompute]/x))
		}
	}
	if x, found := seconds[names[2]][recurrent]; found {
		out.find("MNIST in batches of %d: %s images a second.", latencyBatch, digits(1/x))
	}
	return out, nil
}
