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

func order(p int) func(*bench.Line)     { return func(l *bench.Line) { l.Order = p } }
func in(form string) func(*bench.Line)  { return func(l *bench.Line) { l.Form = form } }
func threads(t int) func(*bench.Line)   { return func(l *bench.Line) { l.Threads = t } }
func masked(is bool) func(*bench.Line)  { return func(l *bench.Line) { l.Causal = is } }
func way(way string) func(*bench.Line)  { return func(l *bench.Line) { l.Direction = way } }
func ratio(title, of, by string) column { return column{title: title, contestant: of, baseline: by} }
func shown(title, of string, what figure) column {
	return column{title: title, contestant: of, show: what}
}

// sections returns all tables. The long selection has the lengths that take
// minutes.
func sections(long bool) []section {
	lengths := []int{64, 128, 256, 512, 1024, 2048, 4096}
	widths := []int{16, 32, 64, 128}
	widthsBack := []int{64}
	if long {
		lengths = append(lengths, 8192, 16384)
		widthsBack = []int{32, 64, 128}
	}
	return []section{
		forward(widths, lengths), causal(widths, lengths), polynomials(widths, []int{1024, 4096}),
		features(widths, []int{1024, 4096, 16384}), backward(widthsBack, []int{1024, 4096}),
		scaling([]int{32, 64}, []int{1024, 4096}), training(),
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

func forward(widths, lengths []int) section {
	return section{
		name: "forward", title: "Over all keys, forward", keys: shape,
		note: "One thread. Fastmax of order 2 in the form that `auto` takes and our flash softmax, against ONNX Runtime's MultiHeadAttention (MHA), its graph of MatMul, Softmax and MatMul, and PyTorch's scaled_dot_product_attention (SDPA).",
		columns: []column{
			shown("fastmax", "fastmax", form), shown("ms", "fastmax", milliseconds), shown("of peak", "fastmax", share),
			ratio("MHA / fastmax", "mha", "fastmax"), ratio("graph / fastmax", "graph", "fastmax"), ratio("SDPA / fastmax", "sdpa", "fastmax"),
			shown("softmax ms", "softmax", milliseconds), shown("of peak", "softmax", share),
			ratio("MHA / softmax", "mha", "softmax"), ratio("graph / softmax", "graph", "softmax"), ratio("SDPA / softmax", "sdpa", "softmax"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax", farfield, "fastmax", n, d, order(2)), contestantOf("mha", onnxruntime, "softmax", n, d, in("mha")),
			contestantOf("softmax", farfield, "softmax", n, d), contestantOf("graph", onnxruntime, "softmax", n, d, in("graph")),
			contestantOf("sdpa", torch, "softmax", n, d),
		}
	})
}

func causal(widths, lengths []int) section {
	return section{
		name: "causal", title: "Causal, forward", keys: shape,
		note: "One thread. MHA with a causal mask is slower than without, so PyTorch's SDPA is what there is to compare with.",
		columns: []column{
			shown("fastmax", "fastmax", form), shown("ms", "fastmax", milliseconds), shown("of peak", "fastmax", share),
			ratio("SDPA / fastmax", "sdpa", "fastmax"),
			shown("softmax ms", "softmax", milliseconds), shown("of peak", "softmax", share), ratio("SDPA / softmax", "sdpa", "softmax"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax", farfield, "fastmax", n, d, order(2), masked(true)), contestantOf("sdpa", torch, "softmax", n, d, masked(true)),
			contestantOf("softmax", farfield, "softmax", n, d, masked(true)),
		}
	})
}

func polynomials(widths, lengths []int) section {
	return section{
		name: "polynomials", title: "Polynomial attention by its factors", keys: shape,
		note: "One thread, all keys. The linear form against the same mechanism of tensor operations in PyTorch: Fastmax of order 2 by einsum, and the operations of TaylorShift's efficient form.",
		columns: []column{
			shown("fastmax ms", "fastmax", milliseconds), shown("einsum ms", "einsum", milliseconds), ratio("einsum / fastmax", "einsum", "fastmax"),
			shown("taylorshift ms", "taylorshift", milliseconds), shown("efficient ms", "efficient", milliseconds),
			ratio("efficient / taylorshift", "efficient", "taylorshift"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax", farfield, "fastmax", n, d, order(2), in("linear")), contestantOf("einsum", torch, "fastmax", n, d, order(2)),
			contestantOf("taylorshift", farfield, "taylorshift", n, d, order(2), in("linear")), contestantOf("efficient", torch, "taylorshift", n, d, order(2)),
		}
	})
}

func features(widths, lengths []int) section {
	return section{
		name: "features", title: "Few features: Fastmax of order 1, and elu + 1", keys: shape,
		note: "One thread. Against linear attention with elu + 1 in PyTorch: by einsum over all keys; causal by sums before chunks, of the size of 32 to 256 that is fastest, and pairs within them. " +
			"The causal kernel of fast-transformers, which is no package that can be had, took 16.5 ms at D = 64, N = 4096 on a core with a peak of 264 GFLOP/s.",
		columns: []column{
			shown("order 1 ms", "order1", milliseconds), shown("elu + 1 ms", "linear", milliseconds),
			ratio("einsum / order 1", "einsum", "order1"), ratio("einsum / elu + 1", "einsum", "linear"),
			shown("order 1 causal ms", "order1 causal", milliseconds), shown("elu + 1 causal ms", "linear causal", milliseconds),
			ratio("chunks / order 1 causal", "chunks", "order1 causal"), ratio("chunks / elu + 1 causal", "chunks", "linear causal"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("order1", farfield, "fastmax", n, d, order(1)), contestantOf("einsum", torch, "linear", n, d),
			contestantOf("linear", farfield, "linear", n, d), contestantOf("order1 causal", farfield, "fastmax", n, d, order(1), masked(true)),
			contestantOf("chunks", torch, "linear", n, d, masked(true)), contestantOf("linear causal", farfield, "linear", n, d, masked(true)),
		}
	})
}

func backward(widths, lengths []int) section {
	s := section{
		name: "backward", title: "Backward", keys: append([]string{"mask"}, shape...),
		note: "One thread, the gradients alone. Against the backward of PyTorch's SDPA.",
		columns: []column{
			shown("fastmax", "fastmax", form), shown("ms", "fastmax", milliseconds), shown("of peak", "fastmax", share),
			{title: "backward / forward", contestant: "fastmax", baseline: "fastmax forward", highIsWorst: true}, ratio("SDPA / fastmax", "sdpa", "fastmax"),
			shown("softmax ms", "softmax", milliseconds), shown("of peak", "softmax", share),
			{title: "backward / forward", contestant: "softmax", baseline: "softmax forward", highIsWorst: true}, ratio("SDPA / softmax", "sdpa", "softmax"),
		},
	}
	for _, mask := range []string{"all", "causal"} {
		set := masked(mask == "causal")
		for _, c := range (section{name: s.name}).fill(widths, lengths, func(n, d int) []contestant {
			return []contestant{
				contestantOf("fastmax forward", farfield, "fastmax", n, d, order(2), set), contestantOf("fastmax", farfield, "fastmax", n, d, order(2), set, way("backward")),
				contestantOf("sdpa", torch, "softmax", n, d, set, way("backward")),
				contestantOf("softmax forward", farfield, "softmax", n, d, set), contestantOf("softmax", farfield, "softmax", n, d, set, way("backward")),
			}
		}).cells {
			c.keys = append([]string{mask}, c.keys...)
			s.cells = append(s.cells, c)
		}
	}
	return s
}

func scaling(widths, lengths []int) section {
	return section{
		name: "threads", title: "Two threads", keys: shape,
		note: "All keys, forward. How many times faster two threads are than one, and PyTorch and ONNX Runtime with two threads against farfield with two.",
		columns: []column{
			shown("fastmax ms", "fastmax", milliseconds), ratio("1 / 2 threads", "fastmax alone", "fastmax"),
			ratio("MHA / fastmax", "mha", "fastmax"), ratio("SDPA / fastmax", "sdpa", "fastmax"),
			shown("softmax ms", "softmax", milliseconds), ratio("1 / 2 threads", "softmax alone", "softmax"),
			ratio("MHA / softmax", "mha", "softmax"), ratio("SDPA / softmax", "sdpa", "softmax"),
		},
	}.fill(widths, lengths, func(n, d int) []contestant {
		return []contestant{
			contestantOf("fastmax alone", farfield, "fastmax", n, d, order(2)), contestantOf("fastmax", farfield, "fastmax", n, d, order(2), threads(2)),
			contestantOf("mha", onnxruntime, "softmax", n, d, in("mha"), threads(2)), contestantOf("sdpa", torch, "softmax", n, d, threads(2)),
			contestantOf("softmax alone", farfield, "softmax", n, d), contestantOf("softmax", farfield, "softmax", n, d, threads(2)),
		}
	})
}

func training() section {
	const n, d = 1024, 32
	update := []func(*bench.Line){masked(true), way("update"), threads(2)}
	return section{
		name: "training", title: "A step of training", keys: []string{"context"},
		note: fmt.Sprintf("Two threads. %d layers of 8 heads of width 32, MLP × 4, context 1024, batch %d, bytes, tied head, no dropout: forward, backward, clipping, AdamW. Positions are rotated here and learned there, which is less work.", layers, batch),
		columns: []column{
			shown("softmax steps/s", "softmax", perSecond), shown("of peak", "softmax", share),
			shown("PyTorch steps/s", "torch", perSecond), ratio("PyTorch / softmax", "torch", "softmax"),
			shown("fastmax steps/s", "fastmax", perSecond), ratio("PyTorch / fastmax", "torch", "fastmax"),
		},
		cells: []cell{{"training", []string{strconv.Itoa(n)}, []contestant{
			contestantOf("softmax", farfield, "softmax", n, d, update...), contestantOf("torch", torch, "softmax", n, d, update...),
			contestantOf("fastmax", farfield, "fastmax", n, d, append(update, order(2))...),
		}}},
	}
}
