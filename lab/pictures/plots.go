package pictures

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// plot is a panel with logarithmic axes.
type plot struct {
	panel       int
	first, last float64 // tokens at the left and the right
	least, most float64 // values at the bottom and the top
}

func (p *plot) x(n float64) float64 {
	return left(p.panel) + 52 + math.Log(n/p.first)/math.Log(p.last/p.first)*(panelWidth-72)
}

func (p *plot) y(v float64) float64 {
	return panelTop + 10 + math.Log(p.most/v)/math.Log(p.most/p.least)*(panelHeight-46)
}

// drawAxes draws the lines of the values and the numbers of tokens.
func (p *plot) drawAxes(d *drawing, values []float64, texts []string) {
	for i, v := range values {
		d.put(`  <line class="frame" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, p.x(p.first), p.y(v), p.x(p.last), p.y(v))
		d.put(`  <text class="soft" x="%.1f" y="%.1f" font-size="11" text-anchor="end">%s</text>`, p.x(p.first)-5, p.y(v)+4, texts[i])
	}
	for n := p.first; n <= p.last; n *= 4 {
		text := fmt.Sprintf("%.0f", n)
		if n >= 1024 {
			text = fmt.Sprintf("%.0fk", n/1024)
		}
		d.put(`  <text class="soft" x="%.1f" y="%.1f" font-size="11" text-anchor="middle">%s</text>`, p.x(n), panelTop+panelHeight-20, text)
	}
	d.put(`  <text class="soft" x="%.1f" y="%.1f" font-size="11" text-anchor="middle">tokens</text>`, (p.x(p.first)+p.x(p.last))/2, panelTop+panelHeight-6)
}

// lengths are times and bytes of attention over the number of tokens, which TestLengths -write
// measured.
type lengths struct {
	Machine string   `json:"machine"`
	Rows    []length `json:"rows"`
}

// length has the milliseconds of processor time for all queries of a head, and the bytes of its state,
// by mechanism.
type length struct {
	N     int                `json:"n"`
	Ms    map[string]float64 `json:"ms"`
	Bytes map[string]float64 `json:"bytes"`
}

//go:embed lengths.json
var measured []byte

// lengthMechanisms are the mechanisms of the picture, with the classes of their lines.
var lengthMechanisms = []struct{ name, line, text string }{
	{"softmax", "near", "nearFill"},
	{"fastmax", "c", "cText"},
	{"multipole", "a", "aText"},
}

// Lengths draws time and memory of softmax, Fastmax and multipole over the number of tokens. It panics
// if lengths.json cannot be read, which its test excludes.
func Lengths() []byte {
	var list lengths
	if err := json.Unmarshal(measured, &list); err != nil {
		panic(err)
	}
	d := &drawing{}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 625 345" font-family="sans-serif" font-size="13">`)
	d.put("  %s", style)
	d.put(`  <title>Time and memory of softmax, Fastmax and multipole over the number of tokens</title>`)
	d.put(`  <rect class="paper" width="625" height="345"/>`)
	for i, text := range [][3]string{
		{"1  Time", "one head reads a text: processor time", list.Machine},
		{"2  Memory", "what a session keeps of the text", "D = 32, causal; Fastmax of order 2, 256 cells"},
	} {
		d.put(`  <text class="ink" x="%.0f" y="24" font-size="16" font-weight="bold">%s</text>`, left(i), text[0])
		d.put(`  <text class="soft" x="%.0f" y="46">%s</text>`, left(i), text[1])
		d.put(`  <rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, left(i)+0.5, panelTop+0.5, panelWidth, panelHeight)
		d.put(`  <text class="soft" x="%.0f" y="324" font-size="11">%s</text>`, left(i), text[2])
	}
	const first, last = 256, 65536
	times := &plot{0, first, last, 0.01, 1000}
	times.drawAxes(d, []float64{0.01, 0.1, 1, 10, 100, 1000}, []string{"10 µs", "0.1 ms", "1 ms", "10 ms", "0.1 s", "1 s"})
	memory := &plot{1, first, last, 1 << 14, 1 << 24}
	memory.drawAxes(d, []float64{1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24}, []string{"16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB"})
	for _, p := range []*plot{times, memory} {
		for i, m := range lengthMechanisms {
			points, name := "", labels[p.panel][i]
			for _, row := range list.Rows {
				values := row.Ms
				if p == memory {
					values = row.Bytes
				}
				n, v := float64(row.N), values[m.name]
				if v > 0 {
					points += fmt.Sprintf(" %.1f,%.1f", p.x(n), p.y(v))
				}
				if row.N == name.n {
					d.put(`  <text class="%s" x="%.1f" y="%.1f" font-size="12" text-anchor="%s">%s</text>`, m.text, p.x(n), p.y(v)+name.down, name.anchor, m.name)
				}
			}
			d.put(`  <polyline class="curve %s" points="%s"/>`, m.line, points[1:])
		}
	}
	d.put(`</svg>`)
	return d.Bytes()
}

// labels are the places of the names beside the lines, by panel and mechanism: above or below the point
// of n tokens.
var labels = [2][3]struct {
	n      int
	down   float64
	anchor string
}{
	{{16384, -8, "end"}, {32768, 24, "middle"}, {256, -32, "start"}},
	{{16384, -8, "end"}, {65536, 14, "end"}, {65536, -6, "end"}},
}

// qualityRows are the functions that stand in for softmax, as rows of docs/results/exchange.md.
var qualityRows = []struct{ name, row, class string }{
	{"softmax, as trained", "softmax", "nearFill"},
	{"multipole, clusters of the input", "multipole, clusters of the input, tol 0.1", "aText"},
	{"multipole, 256 cells, order 1", "multipole, 256 cells, order 1", "aText"},
	{"multipole, 256 cells, order 0", "multipole, 256 cells, order 0", "aText"},
	{"near field alone", "near field alone, block 32, window 16", "cText"},
	{"performer, 256 features", "performer, 256 features", "bText"},
}

// Quality draws what trained models keep with other functions in place of their softmax, from the text
// of docs/results/exchange.md. It returns an error if the page lacks a row.
func Quality(page string) ([]byte, error) {
	d := &drawing{}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 345" font-family="sans-serif" font-size="13">`)
	d.put("  %s", style)
	d.put(`  <title>What trained models keep with another function in place of their softmax</title>`)
	d.put(`  <rect class="paper" width="940" height="345"/>`)
	for i, panel := range []struct {
		title, what, note string
		table, prefix     string
		column            int
		most              float64 // value of the longest bar
	}{
		{"1  Vectors", "cosine with the trained model's", "MiniLM, 512 tokens; longer is better", "**all-MiniLM-L6-v2, windows", "", 1, 1},
		{"2  Next tokens", "nats a token more than the trained model", "stories260K, 512 tokens; shorter is better", "**stories260K, windows", "", 1, 0.15},
		{"3  Single lines of a text", "share that a model recalls", "needle, 4096 bytes; longer is better", "**Our own softmax model of needle", "4096 | ", 1, 100},
	} {
		d.put(`  <text class="ink" x="%.0f" y="24" font-size="16" font-weight="bold">%s</text>`, left(i), panel.title)
		d.put(`  <text class="soft" x="%.0f" y="46">%s</text>`, left(i), panel.what)
		d.put(`  <rect class="frame" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, left(i)+0.5, panelTop+0.5, panelWidth, panelHeight)
		d.put(`  <text class="soft" x="%.0f" y="324">%s</text>`, left(i), panel.note)
		_, table, _ := strings.Cut(page, panel.table)
		table, _, _ = strings.Cut(table, "\n**")
		for j, row := range qualityRows {
			_, rest, ok := strings.Cut(table, "\n| "+panel.prefix+row.row+" | ")
			text, _, _ := strings.Cut(rest, " |")
			text, _, _ = strings.Cut(text, " (")
			value, err := strconv.ParseFloat(strings.TrimSuffix(text, " %"), 64)
			if !ok || err != nil {
				return nil, fmt.Errorf("docs/results/exchange.md: no number of %q under %s", row.row, panel.table)
			}
			y := panelTop + 8 + 38.5*float64(j)
			width := (panelWidth - 24) * min(max(value/panel.most, 0.004), 1)
			d.put(`  <text class="ink" x="%.1f" y="%.1f" font-size="12">%s</text>`, left(i)+12, y+11, row.name)
			d.put(`  <text class="ink" x="%.1f" y="%.1f" font-size="12" text-anchor="end">%s</text>`, left(i)+panelWidth-12, y+11, text)
			d.put(`  <rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="13"/>`, row.class, left(i)+12, y+16, width)
			if value > panel.most { // the bar goes on
				d.put(`  <path class="paper" d="M %.1f %.1f l 6 -15 l 6 0 l -6 15 z"/>`, left(i)+panelWidth-48, y+30)
			}
		}
	}
	d.put(`</svg>`)
	return d.Bytes(), nil
}

// floors are the floors of the house, from the roof down. Packages are as in arch_test.go; the last
// column says what the floor is for.
var floors = []struct{ packages, what string }{
	{"cmd/farfield, internal/cli/train", "the command: a package for each verb"},
	{"internal/serve, client, farfield", "a server, its calls, and the face of the library"},
	{"internal/generate, internal/inference, internal/sessions", "a model in use"},
	{"internal/exchange, internal/published, train", "exchanged, published and new models"},
	{"model", "layers put together"},
	{"nn, optim, tokenizer, train/data", "layers, optimisers, text and data"},
	{"internal/sequence, mechanism, stream", "the catalogue; streams, and ranks of a job"},
	{"attention, attention/factorised, attention/headwise", "the contract of attention, and its engines"},
	{"tensor, internal/array, internal/safetensors, param", "arrays in memory and in files"},
	{"rng, internal/par, internal/arena, internal/kernel", "fast loops, with the same bits for any number of threads"},
}

// House draws the packages as floors: a package imports packages of floors below, or of its own.
func House() []byte {
	const height, width, top = 42.0, 600.0, 84.0
	d := &drawing{}
	total := top + height*float64(len(floors)-1) + 34
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 625 %.0f" font-family="sans-serif" font-size="13">`, total)
	d.put("  %s", style)
	d.put(`  <title>The house of packages</title>`)
	d.put(`  <rect class="paper" width="625" height="%.0f"/>`, total)
	d.put(`  <path class="mean" d="M %.1f %.1f L %.1f 8 L %.1f %.1f Z"/>`, 12.5, top, 12.5+width/2, 12.5+width, top)
	for i, f := range floors {
		y := top + height*float64(i-1)
		names := strings.ReplaceAll(strings.ReplaceAll(f.packages, "internal/cli/train", "internal/cli/*"), ", ", " · ")
		if i == 0 {
			d.put(`  <text class="ink" x="312.5" y="%.1f" text-anchor="middle" font-weight="bold">%s</text>`, top-28, names)
			d.put(`  <text class="soft" x="312.5" y="%.1f" text-anchor="middle" font-size="12">%s</text>`, top-10, f.what)
			continue
		}
		d.put(`  <rect class="frame" x="12.5" y="%.1f" width="%.1f" height="%.1f"/>`, y+0.5, width, height)
		d.put(`  <text class="ink" x="28" y="%.1f" font-weight="bold">%s</text>`, y+18, names)
		d.put(`  <text class="soft" x="28" y="%.1f" font-size="12">%s</text>`, y+34, f.what)
	}
	d.put(`  <text class="soft" x="28" y="%.1f" font-size="12">A package imports packages of the floors below it, and some of its own floor.</text>`, total-12)
	d.put(`</svg>`)
	return d.Bytes()
}
