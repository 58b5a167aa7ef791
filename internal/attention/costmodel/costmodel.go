// Package costmodel predicts the cost of the direct and the linear form of a call from measured
// speeds. Costs are in operations at the multiply-add peak of one core, so that speeds also
// hold on a processor with another clock.
package costmodel

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/farfield-ml/farfield/internal/cpu"
)

// Kernel is a kind of attention kernel. Kernels of one kind run at the same speed.
type Kernel int

// These are the kernels in the order of a Table. Polynomials above degree 3 use the speed of
// Degree3.
const (
	Softmax Kernel = iota
	Mapped         // a feature map, with a polynomial of any degree
	Degree1
	Degree2
	Degree3
)

var kernelNames = [...]string{"softmax", "mapped", "degree1", "degree2", "degree3"}

// String returns the name of the kind in tables.
func (k Kernel) String() string { return kernelNames[k] }

// Widths holds the row widths D for which tables have speeds.
var Widths = [...]int{8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128}

// Speed holds the cost of a token and the shares of the peak that the two forms reach.
type Speed struct {
	Token  float64 // cost of a query or a key in the direct form
	Direct float64 // share of the peak that pairs reach in the direct form
	Open   float64 // cost of pairs within chunks in the causal linear form, relative to the direct form
	Linear float64 // share of the peak that the products of features with moments reach
}

// Table holds the speeds of one instruction set by direction (forward, backward), mask (none,
// causal), kernel and width. Each speed is measured at a length where both forms take about the
// same time, so that it is most accurate where the choice is close.
type Table [2][2][len(kernelNames)][len(Widths)]Speed

// Interpolate returns the speed of a kernel at width d, interpolated linearly between Widths.
// Outside of them it returns the nearest.
func (t *Table) Interpolate(k Kernel, d int, causal, backward bool) Speed {
	row := t.Row(k, causal, backward)
	i := 0
	for i < len(row) && Widths[i] < d {
		i++
	}
	if i == 0 {
		return row[0]
	}
	if i == len(row) {
		return row[i-1]
	}
	a, b := &row[i-1], &row[i]
	x := float64(d-Widths[i-1]) / float64(Widths[i]-Widths[i-1])
	mid := func(a, b float64) float64 { return a + x*(b-a) }
	return Speed{mid(a.Token, b.Token), mid(a.Direct, b.Direct), mid(a.Open, b.Open), mid(a.Linear, b.Linear)}
}

// Row returns the speeds of a kernel, one for each of Widths.
func (t *Table) Row(k Kernel, causal, backward bool) *[len(Widths)]Speed {
	return &t[index(backward)][index(causal)][k]
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

var (
	directions = [2]string{"forward", "backward"}
	masks      = [2]string{"unmasked", "causal"}
)

// Format returns a table as text. machine describes where it was measured.
func (t *Table) Format(machine string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured on %s\n# direction mask kernel D token direct open linear\n", machine)
	for back := range t {
		for causal := range t[back] {
			for k, row := range &t[back][causal] {
				for i, s := range row {
					fmt.Fprintf(&b, "%s %s %s %d %.0f %.4f %.4f %.4f\n", directions[back], masks[causal], Kernel(k), Widths[i], s.Token, s.Direct, s.Open, s.Linear)
				}
			}
		}
	}
	return b.String()
}

//go:embed avx512.txt avx2.txt generic.txt
var texts embed.FS

var tables [3]struct {
	once  sync.Once
	table Table
}

// Speeds returns the table of an instruction set of internal/cpu. NEON uses the table of AVX2,
// because its kernels are the same on narrower registers.
func Speeds(isa string) *Table {
	i, file := 2, cpu.Generic
	switch isa {
	case cpu.AVX512:
		i, file = 0, isa
	case cpu.AVX2, cpu.NEON:
		i, file = 1, cpu.AVX2
	}
	x := &tables[i]
	x.once.Do(func() {
		text, _ := texts.ReadFile(file + ".txt")
		parse(&x.table, string(text))
	})
	return &x.table
}

// parse sets t to what Format wrote. Tests hold that the embedded texts are complete.
func parse(t *Table, text string) {
	var speeds []Speed
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var x [4]float64
		for i, field := range strings.Fields(line)[4:] {
			x[i], _ = strconv.ParseFloat(field, 64)
		}
		speeds = append(speeds, Speed{x[0], x[1], x[2], x[3]})
	}
	for back := range t {
		for causal := range t[back] {
			for k := range t[back][causal] {
				speeds = speeds[copy(t[back][causal][k][:], speeds):]
			}
		}
	}
}

// Tally is the work of a key head with its query heads in both forms. A multiply-add counts as
// two operations, and columns of values are rounded up to whole vectors.
type Tally struct {
	Tokens  float64 // number of queries and keys
	Pairs   float64 // operations of the direct form on pairs
	Open    float64 // operations of the linear form on pairs within chunks; causal
	Moments float64 // operations of the linear form on tokens and moments
	Causal  bool
}

// DirectCost returns the cost of the direct form.
func (t *Tally) DirectCost(s Speed) float64 { return t.Tokens*s.Token + t.Pairs/s.Direct }

// LinearCost returns the cost of the linear form. For a single chunk it is the cost of the
// direct form, because the work is the same.
func (t *Tally) LinearCost(s Speed) float64 {
	if t.Causal && t.Moments == 0 {
		return t.DirectCost(s)
	}
	cost := t.Moments / s.Linear
	if t.Causal {
		cost += s.Open * (t.Tokens*s.Token + t.Open/s.Direct)
	}
	return cost
}

// CausalPairs returns the number of pairs of n queries and m keys if query i sees keys j ≤ i.
func CausalPairs(n, m int) float64 {
	k := float64(min(max(n, 0), m))
	return k*(k+1)/2 + float64(max(n-m, 0))*float64(m)
}

// ChunkPairs returns the number of causal pairs of n queries and n keys in which both are in
// the same chunk.
func ChunkPairs(n, chunk int) float64 {
	n = max(n, 0)
	return float64(n/chunk)*CausalPairs(chunk, chunk) + CausalPairs(n%chunk, chunk)
}
