package browser

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

var (
	shots   = flag.String("shots", "", "with TestScreenshots: folder of the pictures of docs/serve.md")
	decoder = flag.String("decoder", "", "with -shots: run or folder that continues texts")
	encoder = flag.String("encoder", "", "with -shots: folder that embeds texts")
)

// shoot writes a picture of the window.
func (b *tab) shoot(name string) {
	b.Helper()
	b.text("document.activeElement.blur() || ''")
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, reduce(picture)); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name), out.Bytes(), 0o666); err != nil {
		b.Fatal(err)
	}
}

// reduce draws a picture with its 256 commonest colours, in a third of the bytes.
func reduce(picture image.Image) image.Image {
	counts := map[color.Color]int{}
	box := picture.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[picture.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	small := image.NewPaletted(box, colours[:min(256, len(colours))])
	draw.Draw(small, box, picture, box.Min, draw.Src)
	return small
}

// TestScreenshots writes the pictures of docs/serve.md.
func TestScreenshots(t *testing.T) {
	if *shots == "" {
		t.Skip("-shots names no folder")
	}
	s := start(t, "--model", *decoder, "--store", t.TempDir(), "--addr", "127.0.0.1:0")
	const beginning = "In the evening the old keeper came down from the tower and sat by the fire with the two officers. Outside the wind had " +
		"turned, and one could hear the sea between their words. "
	const set = "((list, v) => { for (const e of list) { e.value = v; e.dispatchEvent(new Event('input')); } return ''; })(document.querySelectorAll('.pane [data-field=\"%s\"]'), '%s')"
	fill := func(b *tab, tokens, heat string) {
		b.text(set, "tokens", tokens)
		b.text(set, "temperature", heat)
	}

	b := browse(t, 1320, 780, "light")
	b.open(s.url)
	fill(b, "120", "0.5")
	b.write(words, beginning)
	b.click(".pane .primary")
	b.wait(written, 0)
	b.text("[...document.querySelectorAll('.pane button')].find((x) => x.textContent === 'Fork').click() || ''")
	b.wait("document.querySelectorAll('.pane').length === 2")
	fill(b, "200", "0.5")
	b.click("#both-continue")
	b.wait(written, 0)
	b.wait(written, 1)
	b.shoot("page-fork.png")

	s = start(t, "--model", *encoder, "--addr", "127.0.0.1:0")
	b = browse(t, 1060, 700, "light")
	b.open(s.url)
	b.click("#sample")
	b.wait("document.querySelector('#hits mark') !== null")
	b.click("#more")
	b.wait("document.querySelectorAll('#hits li').length === 10")
	b.shoot("page-search.png")

	b = browse(t, 1060, 900, "dark")
	b.open(s.url + "/#maps")
	b.wait("document.querySelectorAll('#heads button').length > 2")
	b.click("#heads button:nth-child(7)")
	b.shoot("page-attention.png")
}
