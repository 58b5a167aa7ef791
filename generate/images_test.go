package generate

import (
	"bytes"
	"context"
	"errors"
	"image/color"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func levelModel(t *testing.T, mechanism string, change func(*model.Config)) *model.Model[float32] {
	t.Helper()
	c := model.Config{
		Kind: model.Decoder, Vocab: 257, Outputs: 6, Loss: model.Logistics, Layers: 2, Heads: 2, Width: 16, Context: 25,
		Positions: model.Learned, Mechanism: mechanism, Bias: true,
	}
	if change != nil {
		change(&c)
	}
	m, err := model.New[float32](c, rng.New(5))
	if err != nil {
		t.Fatal(err)
	}
	// First weights say nearly the same whatever came before.
	for i, p := range m.Params().All() {
		for j := range p.Data {
			p.Data[j] += float32(0.3 * rng.New(6).Fold(uint64(i)).Normal(uint64(j)))
		}
	}
	return m
}

func drawImages(t *testing.T, m *model.Model[float32], d Images) [][]byte {
	t.Helper()
	var all [][]byte
	took, err := Draw(context.Background(), m, d, func(i int, levels []byte) error {
		if i != len(all) {
			t.Errorf("image %d comes after %d others", i, len(all))
		}
		all = append(all, slices.Clone(levels))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if took.Images != d.Count || took.Seconds <= 0 || took.Rate <= 0 {
		t.Errorf("drawing %d images took %+v", d.Count, took)
	}
	return all
}

// All ways draw the same images, whatever the batch.
func TestWaysDrawTheSame(t *testing.T) {
	shape := Shape{5, 5, 1}
	for _, x := range []struct {
		mechanism string
		way       Way
		change    func(*model.Config)
	}{
		{"linear", Stateful, nil}, {"softmax", Cached, nil}, {"fastmax", Stateful, func(c *model.Config) { c.Conv = 3 }},
		{"linear", Stateful, func(c *model.Config) { c.Loss, c.Outputs = model.CrossEntropy, 256 }},
	} {
		m := levelModel(t, x.mechanism, x.change)
		want := drawImages(t, m, Images{Shape: shape, Count: 7, Seed: 3})
		// Forms differ by roundings, which change a level about once in 10⁵.
		for _, d := range []Images{{Batch: 3}, {Batch: 1, Way: x.way}, {Batch: 4, Way: Recompute}} {
			d.Shape, d.Count, d.Seed = shape, 7, 3
			for i, got := range drawImages(t, m, d) {
				if !bytes.Equal(got, want[i]) {
					t.Errorf("%s %s in batches of %d: image %d is %v, want %v", x.mechanism, d.Way, d.Batch, i, got, want[i])
				}
			}
		}
		if bytes.Equal(want[0], want[1]) {
			t.Errorf("%s: two images are the same", x.mechanism)
		}
		if other := drawImages(t, m, Images{Shape: shape, Count: 1, Seed: 4}); bytes.Equal(other[0], want[0]) {
			t.Errorf("%s: the seed changes nothing", x.mechanism)
		}
		// A given half stays, and what follows is what would have followed.
		half := want[2][:13]
		for _, way := range []Way{"", Recompute} {
			again := drawImages(t, m, Images{Shape: shape, Count: 3, Seed: 3, Given: half, Way: way})
			if !bytes.Equal(again[2], want[2]) {
				t.Errorf("%s %q: completed to %v, want %v", x.mechanism, way, again[2], want[2])
			}
			if !bytes.HasPrefix(again[0], half) || bytes.Equal(again[0], again[2]) {
				t.Errorf("%s %q: the first completion is %v", x.mechanism, way, again[0])
			}
		}
	}
}

func TestImagesAreChecked(t *testing.T) {
	m := levelModel(t, "linear", nil)
	good := Images{Shape: Shape{5, 5, 1}, Count: 1}
	for _, x := range []struct {
		m      *model.Model[float32]
		change func(*Images)
		want   string
	}{
		{levelModel(t, "linear", func(c *model.Config) { c.Vocab = 256 }), func(*Images) {}, "model: has 256 tokens"},
		{levelModel(t, "linear", func(c *model.Config) { c.Loss = model.Squared }), func(*Images) {}, "model: has 6 outputs"},
		{levelModel(t, "linear", func(c *model.Config) { c.Pool = model.PoolLast }), func(*Images) {}, "model: kind decoder with these settings"},
		{m, func(d *Images) { d.Height = 6 }, "images: 30 levels, the model learned 25 positions"},
		{m, func(d *Images) { d.Width = 0 }, "images: 5×0 pixels"},
		{m, func(d *Images) { d.Count = 0 }, "images: 0, needs"},
		{m, func(d *Images) { d.Batch = -1 }, "batch: -1"},
		{m, func(d *Images) { d.Given = make([]byte, 26) }, "given: 26 levels"},
		{m, func(d *Images) { d.Way = Cached }, "way: cache, but linear has state, or recompute"},
		{m, func(d *Images) { d.Way = "magic" }, `way: "magic" is none of recompute, cache, state`},
	} {
		d := good
		x.change(&d)
		if _, err := Draw(context.Background(), x.m, d, nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error is %v, want %q", err, x.want)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Draw(ctx, m, good, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error of a context that has ended is %v", err)
	}
}

func TestShapeOf(t *testing.T) {
	for n, want := range map[int]Shape{784: {28, 28, 1}, 3072: {32, 32, 3}, 196: {14, 14, 1}, 1: {1, 1, 1}, 3: {1, 1, 3}} {
		if got, err := ShapeOf(n); err != nil || got != want {
			t.Errorf("%d levels are %v (%v), want %v", n, got, err, want)
		}
	}
	for _, n := range []int{0, 2, 785, 3073} {
		if s, err := ShapeOf(n); err == nil {
			t.Errorf("%d levels are %v", n, s)
		}
	}
}

func TestGrid(t *testing.T) {
	grid, err := Grid(Shape{2, 1, 3}, [][]byte{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, {13, 14, 15, 16, 17, 18}})
	if err != nil {
		t.Fatal(err)
	}
	if b := grid.Bounds(); b.Dx() != 8 || b.Dy() != 10 {
		t.Fatalf("the grid is %v", b)
	}
	for _, x := range []struct {
		x, y int
		want color.RGBA
	}{{2, 3, color.RGBA{4, 5, 6, 255}}, {5, 2, color.RGBA{7, 8, 9, 255}}, {2, 6, color.RGBA{13, 14, 15, 255}}, {4, 2, color.RGBA{128, 128, 128, 255}}} {
		if got := grid.At(x.x, x.y); got != x.want {
			t.Errorf("pixel %d,%d is %v, want %v", x.x, x.y, got, x.want)
		}
	}
	if _, err := Grid(Shape{2, 2, 1}, [][]byte{{1}}); err == nil {
		t.Error("an image of one level is accepted")
	}
}
