package maps

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/problem"
	"github.com/farfield-ml/farfield/internal/report"
)

// heat is the map as it is drawn, and the side of the blocks whose means that is.
func (m *Map) heat(most int) (report.Heat, int) {
	h := report.Heat{
		Title: m.title(), Rows: m.weights.Rows, Cols: m.weights.Cols, Values: make([]float64, len(m.weights.Data)),
		X: report.Axis{Label: "keys"}, Y: report.Axis{Label: "queries", First: m.first},
	}
	for i, w := range m.weights.Data {
		h.Values[i] = float64(w)
	}
	if len(m.tokens) == h.Cols && m.first+h.Rows <= len(m.tokens) {
		h.X.Ticks, h.Y.Ticks = m.tokens, m.tokens[m.first:][:h.Rows]
	}
	return h.ReduceCells(most)
}

// colouredShare is the part of the weights that the common colours tell apart: the
// first rows of a causal map, whose few keys have large weights, would drown the rest.
const colouredShare = 0.98

// write makes the files that are asked for.
func (c *Command) write(list []Map) error {
	if c.Out != "" {
		maps := &report.Maps{Title: "Attention maps"}
		side := 1
		for i := range list {
			one := &list[i]
			if one.picture != nil && (i == 0 || one.picture != list[i-1].picture) { // of another model
				maps.Heats = append(maps.Heats, *one.picture)
			}
			h, by := one.heat(c.MaxCells)
			maps.Heats = append(maps.Heats, h)
			side = max(side, by)
		}
		// Maps to be compared are placed below each other if there is room.
		n := 0
		for n < len(list) && list[n].Source == list[0].Source {
			n++
		}
		if list[0].picture != nil {
			n++
		}
		if n > 1 && n <= 5 {
			maps.Columns = n
		}
		if side > 1 {
			maps.Title += fmt.Sprintf(", means of blocks of up to %d × %d", side, side)
		}
		scale := ""
		if !c.OwnScales {
			if end, beyond := maps.LimitColours(colouredShare); end > 0 {
				scale = fmt.Sprintf("One scale for all, which ends at %.2g: %.2g %% of the nonzero cells lie beyond.", end, 100*beyond)
			} else if len(list) > 1 {
				scale = "One scale for all."
			}
		}
		var draw func(io.Writer) error
		if filepath.Ext(c.Out) == ".html" {
			draw = mapsPage(maps, scale, list).WriteHTML
		} else {
			maps.Title = strings.TrimSuffix(maps.Title+". "+scale, ". ")
			draw = maps.WritePNG
			if filepath.Ext(c.Out) == ".svg" {
				draw = maps.WriteSVG
			}
		}
		if err := atomicfile.Write(c.Out, draw); err != nil {
			return err
		}
	}
	if c.NPZ == "" {
		return nil
	}
	write, err := problem.WriterFor(c.NPZ)
	if err != nil {
		return env.MarkInput(err)
	}
	return atomicfile.Write(c.NPZ, func(w io.Writer) error { return write(w, mapArrays(list)) })
}

// mapArrays joins the heads of each call.
func mapArrays(list []Map) []*array.Array {
	var all []*array.Array
	for len(list) > 0 {
		first, n := &list[0], 0
		var data []float32
		for n < len(list) && list[n].call == first.call {
			data = append(data, list[n].weights.Data...)
			n++
		}
		name := strings.ReplaceAll(strings.TrimSpace(first.Source+" "+first.Layer), " ", ".")
		if slices.ContainsFunc(all, func(a *array.Array) bool { return a.Name == name }) {
			name += fmt.Sprintf(".%d", first.call)
		}
		all = append(all, problem.NewArray(name, data, []int{n, first.weights.Rows, first.weights.Cols}))
		list = list[n:]
	}
	return all
}

// mapCells returns the statistics of each head as text.
func mapCells(list []Map) (head []string, rows [][]string) {
	for _, m := range list {
		rows = append(rows, []string{
			m.Source, m.Layer, strconv.Itoa(m.Head), strconv.Itoa(m.Queries),
			fmt.Sprintf("%.3f", m.Entropy), fmt.Sprintf("%.2f", m.Distance),
			fmt.Sprintf("%.3f", m.Diagonal), fmt.Sprintf("%.3f", m.Column), strconv.Itoa(m.ColumnAt),
		})
	}
	return []string{"from", "layer", "head", "queries", "entropy", "distance", "diagonal", "column", "at"}, rows
}

func printMaps(w io.Writer, list []Map) error {
	head, rows := mapCells(list)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range slices.Concat([][]string{head}, rows) {
		fmt.Fprintln(t, strings.Join(display.EscapeAll(r), "\t")+"\t")
	}
	return t.Flush()
}

func mapsPage(maps *report.Maps, scale string, list []Map) *report.Page {
	title := maps.Title
	maps.Title = ""
	head, rows := mapCells(list)
	return &report.Page{
		Title: title, Lead: scale,
		Sections: []report.Section{{Maps: maps}, {
			Title: "Where the weights lie",
			Table: &report.Table{Head: head, Rows: rows, Note: "Means over queries. Entropy in nats; distance in tokens; diagonal is the share of the query's own place, column that of the key with most of all weight."},
		}},
		Origin: report.DescribeBuild("farfield " + strings.Join(os.Args[1:], " ")),
	}
}
