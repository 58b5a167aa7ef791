// Package pictures draws the pictures of pages, in one style, for light and dark screens.
package pictures

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/rng"
)

// Run writes the pictures into the folder that args name.
func Run(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("needs the folder of the pages, such as ../docs")
	}
	pictures, err := Pictures(args[0])
	if err != nil {
		return err
	}
	for name, picture := range pictures {
		if err := atomicfile.WriteBytes(filepath.Join(args[0], name), picture); err != nil {
			return err
		}
	}
	return nil
}

// Pictures returns the pictures by the names of their files. It reads results/exchange.md in the folder
// of the pages, and returns an error if the page or a row of it is missing.
func Pictures(docs string) (map[string][]byte, error) {
	page, err := os.ReadFile(filepath.Join(docs, "results", "exchange.md"))
	if err != nil {
		return nil, err
	}
	quality, err := Quality(string(page))
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"multipole.svg": Multipole(), "moments.svg": Moments(), "lengths.svg": Lengths(), "quality.svg": quality, "house.svg": House(),
	}, nil
}

// drawing is an SVG in the making.
type drawing struct{ bytes.Buffer }

func (d *drawing) put(form string, args ...any) { fmt.Fprintf(d, form+"\n", args...) }

// style has the colours of classes, for light and dark screens.
const style = `<style>
    .paper { fill: #fff } .ink { fill: #1b1f24 } .soft { fill: #57606a } .frame { fill: none; stroke: #d0d7de }
    .line { stroke: #0969da } .near { stroke: #bc4c00 } .nearFill { fill: #bc4c00 } .query { fill: #bc4c00 } .key { fill: #57606a }
    .mean { fill: none; stroke: #0969da; stroke-width: 1.5 } .curve { fill: none; stroke-width: 2 } .dash { stroke-dasharray: 5 4 }
    .a { stroke: #0969da } .b { stroke: #1a7f37 } .c { stroke: #8250df } .aText { fill: #0969da } .bText { fill: #1a7f37 } .cText { fill: #8250df }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9198a1 } .frame { stroke: #3d444d } .key { fill: #9198a1 }
      .line, .mean, .a { stroke: #4493f8 } .aText { fill: #4493f8 } .near { stroke: #f0883e } .nearFill, .query { fill: #f0883e }
      .b { stroke: #3fb950 } .bText { fill: #3fb950 } .c { stroke: #ab7df8 } .cText { fill: #ab7df8 }
    }
  </style>`

const (
	panelWidth, panelHeight = 290.0, 240.0
	panelTop                = 62.0
)

// left returns the left edge of a panel.
func left(panel int) float64 { return 10 + float64(panel)*(panelWidth+25) }

// Moments draws queries that meet all keys, and queries that read sums over the keys.
func Moments() []byte {
	d := &drawing{}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 625 345" font-family="sans-serif" font-size="13">`)
	d.put("  %s", style)
	d.put(`  <title>Queries and keys: each pair, and by way of moments</title>`)
	d.put(`  <rect class="paper" width="625" height="345"/>`)
	for i, text := range [][3]string{
		{"1  Pair by pair", "each query meets each key", "time grows with N·M"},
		{"2  By moments", "keys are summed once, queries read the sums", "time grows with (N + M)·F"},
	} {
		d.put(`  <text class="ink" x="%.0f" y="24" font-size="16" font-weight="bold">%s</text>`, left(i), text[0])
		d.put(`  <text class="soft" x="%.0f" y="46">%s</text>`, left(i), text[1])
		d.put(`  <rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, left(i)+0.5, panelTop+0.5, panelWidth, panelHeight)
		d.put(`  <text class="soft" x="%.0f" y="324">%s</text>`, left(i), text[2])
	}
	const tokens = 10
	y := func(i int) float64 { return panelTop + panelHeight*(float64(i)+1)/(tokens+1) }
	for panel := range 2 {
		keys, middle, queries := left(panel)+50, left(panel)+panelWidth/2, left(panel)+panelWidth-50
		for i := range tokens {
			if panel == 0 {
				for j := range tokens {
					d.put(`  <line class="line" stroke-width="0.6" opacity="0.55" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, keys, y(i), queries, y(j))
				}
			} else {
				d.put(`  <line class="line" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, keys, y(i), middle-26, panelTop+panelHeight/2)
				d.put(`  <line class="near" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, middle+26, panelTop+panelHeight/2, queries, y(i))
			}
		}
		for i := range tokens {
			d.put(`  <circle class="key" cx="%.1f" cy="%.1f" r="4"/>`, keys, y(i))
			d.put(`  <circle class="query" cx="%.1f" cy="%.1f" r="4"/>`, queries, y(i))
		}
		d.put(`  <text class="soft" x="%.1f" y="%.1f" text-anchor="end">k, v</text>`, keys-10, panelTop+panelHeight/2)
		d.put(`  <text class="nearFill" x="%.1f" y="%.1f">q</text>`, queries+10, panelTop+panelHeight/2)
	}
	middle := left(1) + panelWidth/2
	d.put(`  <rect class="paper" x="%.1f" y="%.1f" width="52" height="90"/>`, middle-26, panelTop+panelHeight/2-45)
	d.put(`  <rect class="mean" x="%.1f" y="%.1f" width="52" height="90"/>`, middle-26, panelTop+panelHeight/2-45)
	d.put(`  <text class="ink" x="%.1f" y="%.1f" text-anchor="middle" font-weight="bold">S</text>`, middle, panelTop+panelHeight/2-4)
	d.put(`  <text class="soft" x="%.1f" y="%.1f" text-anchor="middle" font-size="11">F sums</text>`, middle, panelTop+panelHeight/2+14)
	d.put(`</svg>`)
	return d.Bytes()
}

// Multipole draws attention of one query three times: to all keys, to near keys and cells, and the error
// over the number of cells.
func Multipole() []byte {
	d := &drawing{}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 345" font-family="sans-serif" font-size="13">`)
	d.put("  %s", style)
	d.put(`  <title>Attention of a query: to all keys, to near keys and cells, and the error over the number of cells</title>`)
	d.put(`  <rect class="paper" width="940" height="345"/>`)
	for i, text := range [][2]string{
		{"1  A sum over all keys", "softmax: one weight for each of N keys"},
		{"2  Near keys, and cells", "orange: near keys, one by one; blue: K cells"},
		{"3  The dial of the error", "more cells, or a higher order"},
	} {
		d.put(`  <text class="ink" x="%.0f" y="24" font-size="16" font-weight="bold">%s</text>`, left(i), text[0])
		d.put(`  <text class="soft" x="%.0f" y="46">%s</text>`, left(i), text[1])
		d.put(`  <rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, left(i)+0.5, panelTop+0.5, panelWidth, panelHeight)
	}
	keys := scattered(rng.New(5), 96, 2, 6, 0.09)
	near := []int{3, 18, 40, 41, 66, 90}
	drawKeys(d, 0, keys, near, nil)
	drawKeys(d, 1, keys, near, cellsOf(keys, 9))
	drawDial(d)
	d.put(`  <text class="soft" x="%.0f" y="324">error of each weight: 0; cost N² for all queries</text>`, left(0))
	d.put(`  <text class="soft" x="%.0f" y="324">a cell weighs n·exp(q·c̄), c̄ the mean of its n keys</text>`, left(1))
	d.put(`  <text class="soft" x="%.0f" y="324">1024 keys of 16 groups, D = 8, 32 near; computed</text>`, left(2))
	d.put(`</svg>`)
	return d.Bytes()
}

// scattered returns n points of d coordinates in groups, within the unit cube.
func scattered(key rng.Key, n, d, groups int, spread float64) [][]float64 {
	list := make([][]float64, n)
	for i := range list {
		group := key.Fold(1).Fold(uint64(i % groups))
		for c := range d {
			centre := 0.14 + 0.72*group.Float64(uint64(c))
			list[i] = append(list[i], min(max(centre+spread*key.Fold(2).Fold(uint64(i)).Normal(uint64(c)), 0.04), 0.96))
		}
	}
	return list
}

// drawKeys draws the keys and what a query sums: all keys, or near keys and the means of cells.
func drawKeys(d *drawing, panel int, keys [][]float64, near []int, cells []int) {
	at := func(p []float64) (x, y float64) {
		return left(panel) + p[0]*panelWidth, panelTop + p[1]*panelHeight
	}
	qx, qy := at([]float64{0.52, 0.5})
	for i, k := range keys {
		x, y := at(k)
		switch isNear := slices.Contains(near, i); {
		case cells == nil:
			d.put(`  <line class="line" stroke-width="0.6" opacity="0.55" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, qx, qy, x, y)
		case isNear:
			d.put(`  <line class="near" stroke-width="1" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, qx, qy, x, y)
		}
	}
	if cells != nil {
		for c := range slices.Max(cells) + 1 {
			var sum [2]float64
			n := 0.0
			for i, k := range keys {
				if cells[i] == c && !slices.Contains(near, i) {
					sum[0], sum[1], n = sum[0]+k[0], sum[1]+k[1], n+1
				}
			}
			if n == 0 {
				continue
			}
			mean, radius := []float64{sum[0] / n, sum[1] / n}, 0.0
			x, y := at(mean)
			for i, k := range keys {
				if cells[i] == c && !slices.Contains(near, i) {
					kx, ky := at(k)
					radius = max(radius, math.Hypot(kx-x, ky-y))
				}
			}
			d.put(`  <circle class="mean" opacity="0.7" cx="%.1f" cy="%.1f" r="%.1f"/>`, x, y, radius+3)
			d.put(`  <line class="line" stroke-width="%.1f" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, 0.6+n/8, qx, qy, x, y)
		}
	}
	for i, k := range keys {
		x, y := at(k)
		class := "key"
		if cells != nil && slices.Contains(near, i) {
			class = "nearFill"
		}
		d.put(`  <circle class="%s" cx="%.1f" cy="%.1f" r="2.4"/>`, class, x, y)
	}
	d.put(`  <circle class="query" cx="%.1f" cy="%.1f" r="6"/>`, qx, qy)
	d.put(`  <text class="ink" x="%.1f" y="%.1f" font-weight="bold">q</text>`, qx+9, qy-7)
}

// cellsOf returns the cells of keys by k-means, whose first centres are keys that lie evenly apart.
func cellsOf(keys [][]float64, count int) []int {
	centres := make([][]float64, count)
	for c := range centres {
		centres[c] = slices.Clone(keys[c*len(keys)/count])
	}
	cells := make([]int, len(keys))
	for range 12 {
		for i, k := range keys {
			least := math.Inf(1)
			for c, centre := range centres {
				var sum float64
				for e, x := range k {
					sum += (x - centre[e]) * (x - centre[e])
				}
				if sum < least {
					least, cells[i] = sum, c
				}
			}
		}
		for c := range centres {
			sum, n := make([]float64, len(keys[0])), 0.0
			for i, k := range keys {
				if cells[i] == c {
					for e, x := range k {
						sum[e] += x
					}
					n++
				}
			}
			for e := range sum {
				if n > 0 {
					centres[c][e] = sum[e] / n
				}
			}
		}
	}
	return cells
}

// dial is a set of queries, keys and values whose attention is expanded about the means of cells.
type dial struct {
	queries, keys, values [][]float64
	near                  int // the first keys are near
}

func newDial() *dial {
	const n, d = 1024, 8
	x := &dial{keys: scattered(rng.New(11), n, d, 16, 0.14), near: 32}
	for i := range n {
		var v []float64
		for c := range d { // keys of a group have values that are alike
			v = append(v, rng.New(13).Fold(uint64(i%16)).Normal(uint64(c))+0.3*rng.New(14).Fold(uint64(i)).Normal(uint64(c)))
		}
		x.values = append(x.values, v)
	}
	for i := range 32 {
		var q []float64
		for c := range d {
			q = append(q, 1.2*rng.New(12).Fold(uint64(i)).Normal(uint64(c)))
		}
		x.queries = append(x.queries, q)
	}
	return x
}

// error returns the mean error of the rows of multipole, relative to the rows of softmax. Without cells
// the far keys are left out.
func (x *dial) error(cells []int, order int) float64 {
	means := map[int][]float64{}
	counts := map[int]float64{}
	for i, c := range cells {
		if i < x.near {
			continue
		}
		if means[c] == nil {
			means[c] = make([]float64, len(x.keys[i]))
		}
		for e, v := range x.keys[i] {
			means[c][e] += v
		}
		counts[c]++
	}
	var sum float64
	for _, q := range x.queries {
		exact, other := make([]float64, len(q)), make([]float64, len(q))
		var all, some float64
		for i, k := range x.keys {
			w := math.Exp(product(q, k))
			y := w
			if i >= x.near {
				y = 0
				if cells != nil {
					c := cells[i]
					base := product(q, means[c]) / counts[c]
					step := product(q, k) - base
					y = math.Exp(base) * (1 + []float64{0, step, step + step*step/2}[order])
				}
			}
			for e, v := range x.values[i] {
				exact[e] += w * v
				other[e] += y * v
			}
			all, some = all+w, some+y
		}
		var off, size float64
		for e := range exact {
			a, b := exact[e]/all, other[e]/some
			off, size = off+(a-b)*(a-b), size+a*a
		}
		sum += math.Sqrt(off/size) / float64(len(x.queries))
	}
	return sum
}

func product(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// drawDial draws the error over the number of cells.
func drawDial(d *drawing) {
	x := newDial()
	const most, least = 1.0, 1e-4 // error at the top and the bottom
	const first, last = 1, 512
	px := func(cells float64) float64 {
		return left(2) + 46 + math.Log(cells/first)/math.Log(last/first)*(panelWidth-66)
	}
	py := func(e float64) float64 {
		return panelTop + 10 + math.Log(most/min(max(e, least), most))/math.Log(most/least)*(panelHeight-46)
	}
	for _, e := range []struct {
		value float64
		text  string
	}{{1, "100 %"}, {0.1, "10 %"}, {0.01, "1 %"}, {0.001, "0.1 %"}, {0.0001, "0.01 %"}} {
		d.put(`  <line class="frame" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, px(first), py(e.value), px(last), py(e.value))
		d.put(`  <text class="soft" x="%.1f" y="%.1f" font-size="11" text-anchor="end">%s</text>`, px(first)-5, py(e.value)+4, e.text)
	}
	for _, n := range []float64{1, 8, 64, 512} {
		d.put(`  <text class="soft" x="%.1f" y="%.1f" font-size="11" text-anchor="middle">%.0f</text>`, px(n), panelTop+panelHeight-20, n)
	}
	d.put(`  <text class="soft" x="%.1f" y="%.1f" font-size="11" text-anchor="middle">cells, K</text>`, (px(first)+px(last))/2, panelTop+panelHeight-6)
	alone := py(x.error(nil, 0))
	d.put(`  <line class="near dash" stroke-width="1.5" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, px(first), alone, px(last), alone)
	d.put(`  <text class="nearFill" x="%.1f" y="%.1f" font-size="11" text-anchor="end">near keys alone</text>`, px(last), alone-5)
	for order, class := range []string{"a", "b", "c"} {
		points := ""
		y := 0.0
		for cells := first; cells <= last; cells *= 2 {
			y = py(x.error(cellsOf(x.keys, cells), order))
			points += fmt.Sprintf(" %.1f,%.1f", px(float64(cells)), y)
		}
		d.put(`  <polyline class="curve %s" points="%s"/>`, class, points[1:])
		d.put(`  <text class="%sText" x="%.1f" y="%.1f" font-size="11" text-anchor="end">order %d</text>`, class, px(last)-4, y+[]float64{-8, 15, 15}[order], order)
	}
}
