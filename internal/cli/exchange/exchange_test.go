package exchange

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/flags"
)

// Updates of weights in fewer bits are refused before a model is read.
func TestUpdatesNeedFullPrecision(t *testing.T) {
	for _, p := range []string{"bf16", "int8"} {
		c := &Command{Field: "text", Updates: 30, Precision: flags.Precision{Precision: p}}
		if err := c.check(); err == nil || !strings.Contains(err.Error(), "--updates: 30, and --precision is "+p) {
			t.Errorf("%s: %v", p, err)
		}
	}
	c := &Command{Field: "text", Updates: 30, Precision: flags.Precision{Precision: "f32"}}
	if err := c.check(); err != nil {
		t.Error(err)
	}
}

// A file or folder of another kind where updates are to be saved is refused before a model is read.
func TestUpdatesLeaveOtherFiles(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	c := &Command{Field: "text", Updates: 30, Out: out}
	if err := c.check(); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(out+".updates", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(out+".updates", "notes.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{out, out + "/"} {
		c.Out = out
		if err := c.check(); err == nil || !strings.Contains(err.Error(), "--updates: "+filepath.Clean(out)+".updates") || !strings.Contains(err.Error(), "notes.txt") {
			t.Errorf("error is %v", err)
		}
	}
	c.Updates = 0 // nothing is saved
	if err := c.check(); err != nil {
		t.Error(err)
	}
}
