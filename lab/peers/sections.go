package peers

import (
	"fmt"
	"strconv"

	"github.com/farfield-ml/farfield/internal/bench"
)

// Implementations, the values of a Line's Impl.
const (
	farfield    = "farfield"
	torch       = "torch"
	onnxruntime = "onnxruntime"
)

// section is a table: what is compared, and where.
type section struct {
	name, title string
	note        string // under the title
	keys        []string
	columns     []column
	cells       []cell
}

// column is a column of a table: a figure of a contestant, or its time divided by the
// time of a baseline.
type column struct {
	title       string
	contestant  string // contestant
	baseline    string // the one that its time is divided by; "": show says what is shown
	show        figure
	highIsWorst bool // the largest ratio is the worst, not the least
}

// figure is what a column shows of a contestant.
type figure string

const (
	milliseconds = figure("ms")
	share        = figure("share")
	form         = figure("form")
	perSecond    = figure("per second")
)

// cell is a row of a table: contestants that take turns.
type cell struct {
	section     string
	keys        []string // of the row
	contestants []contestant
}

// contestant is a case by the name that columns know it by; the Line has no
// figures.
type contestant struct {
	name string
	line bench.Line
}

// name is what the flag -run chooses by, such as forward/64/1024.
func (c cell) name() string {
	name := c.section
	for _, k := range c.keys {
		name += "/" + k
	}
	return name
}

// contestantOf returns a contestant with H = 8 on one thread, changed by set.
func contestantOf(name, impl, mechanism string, n, d int, set ...func(*bench.Line)) contestant {
	l := bench.Line{Impl: impl, Mechanism: mechanism, Direction: "forward", N: n, M: n, D: d, Dv: d, Heads: 8, Threads: 1}
	if impl == farfield {
		l.Form = "auto"
	}
	for _, f := range set {
		f(&l)
	}
	return contestant{name, l}
}

func withOrder(p int) func(*bench.Line)          { return func(l *bench.Line) { l.Order = p } }
func withForm(form string) func(*bench.Line)     { return func(l *bench.Line) { l.Form = form } }
func withThreads(t int) func(*bench.Line)        { return func(l *bench.Line) { l.Threads = t } }
func withMask(is bool) func(*bench.Line)         { return func(l *bench.Line) { l.Causal = is } }
func withDirection(way string) func(*bench.Line) { return func(l *bench.Line) { l.Direction = way } }
func ratioColumn(title, of, by string) column {
	return column{title: title, contestant: of, baseline: by}
}
func figureColumn(title, of string, what figure) column {
	return column{title: title, contestant: of, show: what}
}

// allSections returns all tables. The long selection has the lengths that take
// minutes.
func allSections(long bool) []section {
	lengths := []int{64, 128, 256, 512, 1024, 2048, 4096}
	widths := []int{16, 32, 64, 128}
	widthsBack := []int{64}
	if long {
		lengths = append(lengths, 8192, 16384)
		widthsBack = []int{32, 64, 128}
	}
	return []section{
		forwardSection(widths, lengths), causalSection(widths, lengths), polynomialSection(widths, []int{1024, 4096}),
		featureSection(widths, []int{1024, 4096, 16384}), backwardSection(widthsBack, []int{1024, 4096}),
		scalingSection([]int{32, 64}, []int{1024, 4096}), trainingSection(),
	}
}

// fill adds a cell for every width and length.
func (s section) fill(widths, lengths []int, contestants func(n, d int) []contestant) section {
	for _, d := range widths {
		for _, n := range lengths {
			s.cells = append(s.cells, cell{s.name, []string{strconv.Itoa(d), strconv.Itoa(n)}, contestants(n, d)})
		}
	}
	return s
}

var shape = []string{"D", "N"}

func forwardSection(widths, lengths []int) section {
	return section{
		name: "forward", title: "Over all keys, forward", keys: shape,
		note: "One thread. Fastmax of order 2 in the form that `auto` takes and our flash softmax, against ONNX Runtime's MultiHeadAttention (MHA), its graph of MatMul, Softmax and MatMul, and PyTorch's scaled_dot_product_attention (SDPA).",
		columns: []column{
			figureColumn("fastmax", "fastmax", form), figureColumn("ms", "fastmax", milliseconds), figureColumn("of peak", "fastmax", share),
			ratioColumn("MHA / fastmax", "mha", "fastmax"), ratioColumn("graph / fastmax", "graph", "fastmax"), ratioColumn("SDPA / fastmax", "sdpa", "fastmax"),
			figureColumn("softmax ms", "softmax", milliseconds), figureColumn("of peak", "softmax", share),
			ratioColumn("MHA / softmax", "mha", "softmax"), ratioColumn("graph / softmax", "graph", "softmax"), ratioColumn("SDPA / softmax", "sdpa", "softmax"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax", farfield, "fastmax", n, d, withOrder(2)), contestantOf("mha", onnxruntime, "softmax", n, d, withForm("mha")),
			contestantOf("softmax", farfield, "softmax", n, d), contestantOf("graph", onnxruntime, "softmax", n, d, withForm("graph")),
			contestantOf("sdpa", torch, "softmax", n, d),
		}
	})
}

func causalSection(widths, lengths []int) section {
	return section{
		name: "causal", title: "Causal, forward", keys: shape,
		note: "One thread. MHA with a causal mask is slower than without, so PyTorch's SDPA is what there is to compare with.",
		columns: []column{
			figureColumn("fastmax", "fastmax", form), figureColumn("ms", "fastmax", milliseconds), figureColumn("of peak", "fastmax", share),
			ratioColumn("SDPA / fastmax", "sdpa", "fastmax"),
			figureColumn("softmax ms", "softmax", milliseconds), figureColumn("of peak", "softmax", share), ratioColumn("SDPA / softmax", "sdpa", "softmax"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax", farfield, "fastmax", n, d, withOrder(2), withMask(true)), contestantOf("sdpa", torch, "softmax", n, d, withMask(true)),
			contestantOf("softmax", farfield, "softmax", n, d, withMask(true)),
		}
	})
}

func polynomialSection(widths, lengths []int) section {
	return section{
		name: "polynomials", title: "Polynomial attention by its factors", keys: shape,
		note: "One thread, all keys. The linear form against the same mechanism of tensor operations in PyTorch: Fastmax of order 2 by einsum, and the operations of TaylorShift's efficient form.",
		columns: []column{
			figureColumn("fastmax ms", "fastmax", milliseconds), figureColumn("einsum ms", "einsum", milliseconds), ratioColumn("einsum / fastmax", "einsum", "fastmax"),
			figureColumn("taylorshift ms", "taylorshift", milliseconds), figureColumn("efficient ms", "efficient", milliseconds),
			ratioColumn("efficient / taylorshift", "efficient", "taylorshift"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax", farfield, "fastmax", n, d, withOrder(2), withForm("linear")), contestantOf("einsum", torch, "fastmax", n, d, withOrder(2)),
			contestantOf("taylorshift", farfield, "taylorshift", n, d, withOrder(2), withForm("linear")), contestantOf("efficient", torch, "taylorshift", n, d, withOrder(2)),
		}
	})
}

func featureSection(widths, lengths []int) section {
	return section{
		name: "features", title: "Few features: Fastmax of order 1, and elu + 1", keys: shape,
		note: "One thread. Against linear attention with elu + 1 in PyTorch: by einsum over all keys; causal by sums before chunks, of the size of 32 to 256 that is fastest, and pairs within them. " +
			"The causal kernel of fast-transformers, no longer available as a package, took 16.5 ms at D = 64, N = 4096 on a core with a peak of 264 GFLOP/s.",
		columns: []column{
			figureColumn("order 1 ms", "order1", milliseconds), figureColumn("elu + 1 ms", "linear", milliseconds),
			ratioColumn("einsum / order 1", "einsum", "order1"), ratioColumn("einsum / elu + 1", "einsum", "linear"),
			figureColumn("order 1 causal ms", "order1 causal", milliseconds), figureColumn("elu + 1 causal ms", "linear causal", milliseconds),
			ratioColumn("chunks / order 1 causal", "chunks", "order1 causal"), ratioColumn("chunks / elu + 1 causal", "chunks", "linear causal"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("order1", farfield, "fastmax", n, d, withOrder(1)), contestantOf("einsum", torch, "linear", n, d),
			contestantOf("linear", farfield, "linear", n, d), contestantOf("order1 causal", farfield, "fastmax", n, d, withOrder(1), withMask(true)),
			contestantOf("chunks", torch, "linear", n, d, withMask(true)), contestantOf("linear causal", farfield, "linear", n, d, withMask(true)),
		}
	})
}

func backwardSection(widths, lengths []int) section {
	s := section{
		name: "backward", title: "Backward", keys: append([]string{"mask"}, shape...),
		note: "One thread, the gradients alone. Against the backward of PyTorch's SDPA.",
		columns: []column{
			figureColumn("fastmax", "fastmax", form), figureColumn("ms", "fastmax", milliseconds), figureColumn("of peak", "fastmax", share),
			{title: "backward / forward", contestant: "fastmax", baseline: "fastmax forward", highIsWorst: true}, ratioColumn("SDPA / fastmax", "sdpa", "fastmax"),
			figureColumn("softmax ms", "softmax", milliseconds), figureColumn("of peak", "softmax", share),
			{title: "backward / forward", contestant: "softmax", baseline: "softmax forward", highIsWorst: true}, ratioColumn("SDPA / softmax", "sdpa", "softmax"),
		},
	}
	for _, mask := range []string{"all", "causal"} {
		set := withMask(mask == "causal")
		for _, c := range (section{name: s.name}).fill(widths, lengths, func(n, d int) []contestant {
			return []contestant{
				contestantOf("fastmax forward", farfield, "fastmax", n, d, withOrder(2), set), contestantOf("fastmax", farfield, "fastmax", n, d, withOrder(2), set, withDirection("backward")),
				contestantOf("sdpa", torch, "softmax", n, d, set, withDirection("backward")),
				contestantOf("softmax forward", farfield, "softmax", n, d, set), contestantOf("softmax", farfield, "softmax", n, d, set, withDirection("backward")),
			}
		}).cells {
			c.keys = append([]string{mask}, c.keys...)
			s.cells = append(s.cells, c)
		}
	}
	return s
}

func scalingSection(widths, lengths []int) section {
	return section{
		name: "threads", title: "Two threads", keys: shape,
		note: "All keys, forward. How many times faster two threads are than one, and PyTorch and ONNX Runtime with two threads against farfield with two.",
		columns: []column{
			figureColumn("fastmax ms", "fastmax", milliseconds), ratioColumn("1 / 2 threads", "fastmax alone", "fastmax"),
			ratioColumn("MHA / fastmax", "mha", "fastmax"), ratioColumn("SDPA / fastmax", "sdpa", "fastmax"),
			figureColumn("softmax ms", "softmax", milliseconds), ratioColumn("1 / 2 threads", "softmax alone", "softmax"),
			ratioColumn("MHA / softmax", "mha", "softmax"), ratioColumn("SDPA / softmax", "sdpa", "softmax"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax alone", farfield, "fastmax", n, d, withOrder(2)), contestantOf("fastmax", farfield, "fastmax", n, d, withOrder(2), withThreads(2)),
			contestantOf("mha", onnxruntime, "softmax", n, d, withForm("mha"), withThreads(2)), contestantOf("sdpa", torch, "softmax", n, d, withThreads(2)),
			contestantOf("softmax alone", farfield, "softmax", n, d), contestantOf("softmax", farfield, "softmax", n, d, withThreads(2)),
		}
	})
}

func trainingSection() section {
	const n, d = 1024, 32
	update := []func(*bench.Line){withMask(true), withDirection("update"), withThreads(2)}
	return section{
		name: "training", title: "A step of training", keys: []string{"context"},
		note: fmt.Sprintf("Two threads. %d layers of 8 heads of width 32, MLP × 4, context 1024, batch %d, bytes, tied head, no dropout: forward, backward, clipping, AdamW. Positions are rotated here and learned there, which is less work.", layers, batch),
		columns: []column{
			figureColumn("softmax steps/s", "softmax", perSecond), figureColumn("of peak", "softmax", share),
			figureColumn("PyTorch steps/s", "torch", perSecond), ratioColumn("PyTorch / softmax", "torch", "softmax"),
			figureColumn("fastmax steps/s", "fastmax", perSecond), ratioColumn("PyTorch / fastmax", "torch", "fastmax"),
		},
		cells: []cell{{"training", []string{strconv.Itoa(n)}, []contestant{
			contestantOf("softmax", farfield, "softmax", n, d, update...), contestantOf("torch", torch, "softmax", n, d, update...),
			contestantOf("fastmax", farfield, "fastmax", n, d, append(update, withOrder(2))...),
		}}},
	}
}
