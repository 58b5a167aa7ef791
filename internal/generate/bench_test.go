package generate

import (
	"context"
	"testing"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// BenchmarkDraw draws the first levels of a batch of images with the size of the
// published model of MNIST; images/s counts whole images, whose levels cost the same.
func BenchmarkDraw(b *testing.B) {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 257, Outputs: 30, Loss: model.Logistics, Layers: 8, Heads: 8, Width: 256, Hidden: 1024, Context: 784,
		Positions: model.Learned, Bias: true, Mechanism: "linear",
	}, rng.New(1))
	if err != nil {
		b.Fatal(err)
	}
	d := ImageOptions{ImageShape: ImageShape{1, 49, 1}, Count: 192, Batch: 192, Seed: 1}
	for b.Loop() {
		if _, err := DrawImages(context.Background(), m, d, func(int, []byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	images := float64(d.Count*d.Size()) / 784
	b.ReportMetric(images*float64(b.N)/b.Elapsed().Seconds(), "images/s")
}
