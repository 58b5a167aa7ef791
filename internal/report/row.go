package report

import (
	"errors"
	"image/color"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Row is a row of figures. The legend of the first figure is drawn below them and holds for all.
type Row []*Figure

// Sizes of a figure in a row.
const (
	rowWidth  = 3.4 * vg.Inch
	rowHeight = 2.9 * vg.Inch
)

// WriteSVG draws the row as SVG. Equal rows give equal bytes. It returns an error if there is no figure,
// a series is invalid or w fails.
func (r Row) WriteSVG(w io.Writer) error { return sansSVG(w, r.writeTo) }

// WritePNG draws the row as PNG. It returns an error where WriteSVG does.
func (r Row) WritePNG(w io.Writer) error { return r.writeTo(w, pngCanvas) }

func (r Row) writeTo(w io.Writer, canvas newCanvas) error {
	if len(r) == 0 {
		return errors.New("row: has no figures")
	}
	var plots []axes
	var parts [][]drawnPart
	var names legend
	for i, f := range r {
		a, of, l, err := f.prepare()
		if err != nil {
			return err
		}
		if plots, parts = append(plots, a), append(parts, of); i == 0 {
			names = l
		}
	}
	width := rowWidth * vg.Length(len(r))
	below := names.flowEntries(width - 2*margin)
	c := canvas(width, rowHeight+below)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	for i := range plots {
		x := rowWidth * vg.Length(i)
		place := draw.Crop(all, x+margin, x+rowWidth-width-4*margin, margin+below, -margin-tickFont/2)
		plots[i].drawPlot(place, parts[i])
	}
	names.drawEntries(draw.Crop(all, margin, -margin, margin, -rowHeight))
	_, err := c.WriteTo(w)
	return err
}
