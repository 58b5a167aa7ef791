package train

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
)

// What a training needs is compared with the memory before any of it is taken.
func TestTrainingBeyondTheMemoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		change func(c *Config)
		want   string
	}{
		"width":   {func(c *Config) { c.Model.Width, c.Model.Layers, c.Model.Heads = 1<<16, 20, 1024 }, "model: width 65536 with 20 layers: training "},
		"batch":   {func(c *Config) { c.Batch = 1 << 20; c.Model.Context = 1 << 20 }, "batch: 1048576 samples of 1048576 tokens (context): a pass needs "},
		"segment": {func(c *Config) { c.Batch = 1 << 20; c.Model.Context, c.Segment = 1<<24, 1<<20 }, "batch: 1048576 samples of 1048576 tokens (segment): a pass needs "},
		"none":    {func(*Config) {}, ""},
	} {
		p, err := LookupPreset("default")
		if err != nil {
			t.Fatal(err)
		}
		c := p.Config.clone()
		c.Model.Vocab = 256
		x.change(&c)
		if err := c.checkMemory(); err == nil && x.want != "" || err != nil && (x.want == "" || !strings.HasPrefix(fault.InFile(err).Error(), x.want)) {
			t.Errorf("%s: error is %v, needs %q", name, err, x.want)
		}
	}
}
