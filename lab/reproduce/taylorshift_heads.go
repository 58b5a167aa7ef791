package reproduce

import (
	"context"
	"fmt"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/papercost"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
	"github.com/farfield-ml/farfield/train"
)

var taylorShiftHeads = Row{
	Name:   "taylorshift-heads",
	Doc:    "more heads of less width: accuracy on pixels of CIFAR-10, images a second and memory of both forms, and of softmax",
	Source: "Nauen et al. 2024, TaylorShift, arXiv 2403.02920, section 5.3, table of heads",
	Claim:  "4, 8, 16, 32, 64 heads of a width of 256: 47.1, 47.5, 47.3, 46.9, 45.9 %; the direct form slows from 12060 to 1235 images/s, the efficient one rises from 2975 to 13480 and needs 840 to 125 MiB",
	Seeds:  true, Tunes: true,
	pieces: headsPieces, outcome: headsOutcome,
}

// headsPublished is a row of the table: accuracy in percent, images a second and MiB
// of 16 images.
type headsPublished struct {
	Heads              int
	Accuracy           float64
	Direct, DirectMiB  float64
	Efficient, EffiMiB float64
}

var headsTable = []headsPublished{
	{4, 47.1, 12060, 596, 2975, 840},
	{8, 47.5, 7657, 1111, 5749, 585},
	{16, 47.3, 4341, 2135, 9713, 459},
	{32, 46.9, 2528, 4187, 14087, 397},
	{64, 45.9, 1235, 8291, 13480, 125},
}

// Sizes of the published model, whose pixels follow a token of its own.
const (
	headsWidth  = 256
	headsPixels = 32 * 32
	headsImages = 16 // that published memory is of
)

// headsCurves are what is timed: the mechanism in a form.
var headsCurves = []struct {
	name string
	method
	form attention.Form
}{
	{"direct", taylorshift, attention.Direct},
	{"linear", taylorshift, attention.Linear},
	{"softmax", softmax, attention.Auto},
}

// headsConfig is what is measured in turns: all curves with one number of heads, as
// models and, for their memory, as attention alone.
type headsConfig struct {
	Heads  int           `json:"heads"`
	Images int           `json:"images"` // at a time
	Each   time.Duration `json:"each"`
}

func (c *headsConfig) name() string { return fmt.Sprintf("speed-h%d", c.Heads) }

// memory is the name of a curve of attention alone.
func memory(curve string) string { return curve + " attention" }

func headsConfigs(o *Options) (list []headsConfig) {
	for _, p := range headsTable {
		list = append(list, headsConfig{p.Heads, 2, pick(o.Budget, 400*time.Millisecond, 4*time.Second, 30*time.Second)})
	}
	return list
}

func headsPieces(o *Options) (list []Piece, err error) {
	for _, c := range headsConfigs(o) {
		list = append(list, Piece{
			Name: c.name(), Config: c, Time: raceTime(2*len(headsCurves), c.Each),
			run: func(w *Work) (any, error) { return c.run(w) },
		})
	}
	more, err := headsLessons.pieces(o)
	return append(list, more...), err
}

// formed computes a mechanism in one form.
type formed struct {
	attention.Mechanism
	form attention.Form
}

func (f *formed) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	c.Form = f.form
	return f.Mechanism.Forward(out, c, keep)
}

// run returns timings with the number of heads in the place of N.
func (c *headsConfig) run(w *Work) ([]timing, error) {
	var list []timed
	d := headsWidth / c.Heads
	for i := range headsCurves {
		x := &headsCurves[i]
		const n = headsPixels + 1
		a := bench.Attention{
			Mechanism: x.Name, Options: x.options(c.Heads, d, n),
			Shape: attention.Shape{B: 1, H: c.Heads, Hkv: c.Heads, N: n, M: n, D: d, Dv: d, Form: x.form},
		}
		alone, err := a.Case()
		if err != nil {
			return nil, err
		}
		config := model.Config{
			Kind: model.Encoder, Vocab: 256, Outputs: 10, Pool: model.PoolCLS, Bias: true, Positions: model.Sinusoidal,
			Layers: 1, Heads: c.Heads, Width: headsWidth, Hidden: headsWidth, Context: headsPixels,
			Mechanism: x.Name, Order: x.Order, Set: x.Set,
		}
		flops := float64(c.Images)*alone.FLOPs + 2*float64(c.Images*n)*(4+2)*headsWidth*headsWidth
		line := bench.Line{Mechanism: x.Name, Direction: "forward", N: n, M: n, D: d, Dv: d, Heads: c.Heads}
		whole := bench.NewCase(line, flops, alone.Need, func() (func() error, error) {
			u, err := bench.NewUpdate(config, c.Images, 1)
			if err != nil {
				return nil, err
			}
			model.WrapMechanisms(u.Model, func(_ string, of attention.Mechanism) attention.Mechanism {
				return &formed{of, x.form}
			})
			logits := make([]float32, c.Images*config.Outputs)
			return func() error { return u.Model.Logits(context.Background(), &u.Batch, logits) }, nil
		})
		list = append(list, timed{x.name, c.Heads, whole}, timed{memory(x.name), c.Heads, alone})
	}
	return w.race(list, c.Each, time.Minute)
}

// headsOf returns m with the given number of heads.
func headsOf(m method, heads int) method {
	m.Label = fmt.Sprintf("%s, %d heads", m.Label, heads)
	m.change = func(c *train.Config) { c.Model.Heads = heads }
	return m
}

// headsWidths are the widths of the budgets' models; heads are no narrower than the
// published ones.
func headsWidths(o *Options) int { return pick(o.Budget, 64, 128, headsWidth) }

var headsLessons = lessons(func(o *Options) ([]*lesson, error) {
	l, err := presetLesson("image", pick(o.Budget, "image", "image", "lra-image"), pick(o.Budget, 500, 1000, 35000), nil)
	if err != nil {
		return nil, err
	}
	width := headsWidths(o)
	l.Methods = []method{headsOf(softmax, headsTable[0].Heads)}
	for _, p := range headsTable {
		if width/p.Heads >= headsWidth/headsTable[len(headsTable)-1].Heads {
			l.Methods = append(l.Methods, headsOf(taylorshift, p.Heads))
		}
	}
	m := &l.Config.Model
	m.Layers, m.Width, m.Hidden = 1, width, width
	m.Positions, m.Pool = model.Sinusoidal, model.PoolCLS
	l.Seeds = pick(o.Budget, 1, 1, 3)
	l.Length, l.Vocab, l.Baseline = headsPixels, 256, true
	return []*lesson{l}, nil
})

func headsOutcome(o *Options, r *Results) (*Outcome, error) {
	scores := map[string]float64{}
	out, err := headsLessons.outcome(func(_ *Outcome, list []scored) error {
		for _, x := range list[0].Results {
			scores[x.Label] = x.Value
		}
		return nil
	})(o, r)
	if err != nil {
		return nil, err
	}
	accuracy := report.Table{
		Title: "Accuracy in percent", Head: []string{"heads", "width of a head, published", "published", "width of a head here", "taylorshift here", "softmax here"},
		Note: fmt.Sprintf("Here: a layer of width %d. Published: one of width %d, trained longer.", headsWidths(o), headsWidth),
	}
	speed := report.Table{
		Title: "Images a second", Head: []string{"heads", "width of a head", "direct published", "here", "efficient published", "here", "softmax here", "efficient / direct published", "here"},
		Note: "Forward passes of the published model, a layer of width 256 over 1024 pixels and a token of its own, with random weights. Published on a GPU.",
	}
	bytes := report.Table{
		Title: "MiB of 16 images", Head: []string{"heads", "width of a head", "direct published", "its entries counted", "here", "efficient published", "its entries counted", "here", "softmax here"},
		Note: "Counted: the published formulas, in float32. Here: what attention holds beyond inputs and outputs, as scratch of one worker, which does not grow with the number of images.",
	}
	f := report.Figure{Title: "Images a second over heads, width 256", XLabel: "heads", YLabel: "images/s"}
	lines := map[string]*report.Series{}
	for _, x := range headsCurves {
		lines[x.name] = &report.Series{Name: x.name}
	}
	for i, c := range headsConfigs(o) {
		list, found, err := get[[]timing](r, c.name())
		if err != nil {
			return nil, err
		}
		p := headsTable[i]
		cell := func(label string) string {
			if x, found := scores[label]; found {
				return fmt.Sprintf("%.2f", 100*x)
			}
			return none
		}
		own, soft := cell(headsOf(taylorshift, p.Heads).Label), cell(headsOf(softmax, p.Heads).Label)
		if len(scores) > 0 {
			width := none
			if own != none {
				width = fmt.Sprint(headsWidths(o) / p.Heads)
			}
			addRow(&accuracy, fmt.Sprint(p.Heads), fmt.Sprint(headsWidth/p.Heads), fmt.Sprint(p.Accuracy), width, own, soft)
		}
		if !found {
			continue
		}
		rate, mib := map[string]float64{}, map[string]string{"direct": none, "linear": none, "softmax": none}
		for _, x := range headsCurves {
			if t, found := findTiming(list, x.name, p.Heads); found {
				rate[x.name] = float64(c.Images) * 1e3 / t.Ms
				lines[x.name].X, lines[x.name].Y = append(lines[x.name].X, float64(p.Heads)), append(lines[x.name].Y, rate[x.name])
			}
			if t, found := findTiming(list, memory(x.name), p.Heads); found {
				mib[x.name] = digits(t.Bytes / (1 << 20))
			}
		}
		d := headsWidth / p.Heads
		addRow(&speed, fmt.Sprint(p.Heads), fmt.Sprint(d), fmt.Sprint(p.Direct), digits(rate["direct"]), fmt.Sprint(p.Efficient), digits(rate["linear"]), digits(rate["softmax"]),
			digits(p.Efficient/p.Direct), digits(rate["linear"]/rate["direct"]))
		const n = headsPixels + 1
		_, entries := papercost.TaylorShiftHeads(n, headsWidth, p.Heads)
		counted := func(entries float64) string { return digits(headsImages * 4 * entries / (1 << 20)) }
		addRow(&bytes, fmt.Sprint(p.Heads), fmt.Sprint(d), fmt.Sprint(p.DirectMiB), counted(float64(p.Heads)*papercost.TaylorShiftCost(n, d).EntriesDirect.Total()), mib["direct"],
			fmt.Sprint(p.EffiMiB), counted(entries), mib["linear"], mib["softmax"])
	}
	out.Tables = append([]report.Table{accuracy, speed, bytes}, out.Tables...)
	for _, x := range headsCurves {
		if line := lines[x.name]; len(line.X) > 0 {
			f.Series = append(f.Series, *line)
		}
	}
	if len(f.Series) > 0 {
		out.Figures = append(out.Figures, Drawing{"images-a-second", f})
		direct, efficient := lines["direct"].Y, lines["linear"].Y
		if last := len(direct) - 1; last > 0 && len(efficient) == len(direct) {
			out.find("From %d to %d heads the direct form becomes %s times as fast (published %s), the efficient one %s times (published %s).",
				headsTable[0].Heads, headsTable[last].Heads, digits(direct[last]/direct[0]), digits(headsTable[last].Direct/headsTable[0].Direct),
				digits(efficient[last]/efficient[0]), digits(headsTable[last].Efficient/headsTable[0].Efficient))
		}
	}
	return out, nil
}
