package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

type inner struct {
	Heads int `json:"heads"`
	Rope  *struct {
		BetaFast float64 `json:"beta_fast,omitempty"`
	} `json:"rope_scaling,omitempty"`
}

type outer struct {
	Batch      int   `json:"batch_size"`
	Heads      int   `json:"many_heads"`
	Model      inner `json:"model"`
	MostTokens int
}

// An error has Go's names, and in a file or a command the names of the file, through errors that wrap it.
func TestFieldsHaveTheNamesOfTheirReader(t *testing.T) {
	of := Fieldf[inner]("{Heads}: %d do not divide; set {Heads} to %d", 5, 4)
	for _, x := range []struct {
		err      error
		inGo, in string
	}{
		{of, "Heads: 5 do not divide; set Heads to 4", "heads: 5 do not divide; set heads to 4"},
		{fmt.Errorf("a: %w", of), "a: Heads: 5 do not divide; set Heads to 4", "a: heads: 5 do not divide; set heads to 4"},
		{fmt.Errorf("b: %w; c", Fieldf[outer]("{Model}: %w", of)), "b: Model: Heads: 5 do not divide; set Heads to 4; c", "b: model: heads: 5 do not divide; set heads to 4; c"},
		{Fieldf[outer]("{Model.Heads}: %s, {Batch}, {BetaFast}, {Divide}, {MostTokens}", "{x y}"), "Model.Heads: {x y}, Batch, BetaFast, Divide, MostTokens", "heads: {x y}, batch_size, beta_fast, divide, most tokens"},
		{Fieldf[outer]("{Heads}: %d, {Divide} %q: %w", 2, "{Heads}", errors.New("{Batch}: no such file")), "Heads: 2, Divide \"{Heads}\": {Batch}: no such file", "many_heads: 2, divide \"{Heads}\": {Batch}: no such file"},
		{Fieldf[outer]("{Batch}: %w", InFile(of)), "Batch: heads: 5 do not divide; set heads to 4", "batch_size: heads: 5 do not divide; set heads to 4"},
		{errors.Join(io.EOF, of), "EOF\nHeads: 5 do not divide; set Heads to 4", "EOF\nheads: 5 do not divide; set heads to 4"},
		{io.EOF, "EOF", "EOF"},
	} {
		if got := x.err.Error(); got != x.inGo {
			t.Errorf("in Go: %q, want %q", got, x.inGo)
		}
		in := InFile(x.err)
		if again := InFile(fmt.Errorf("d: %w", in)); in.Error() != x.in || again.Error() != "d: "+x.in {
			t.Errorf("in a file: %q and %q, want %q", in, again, x.in)
		}
		if !errors.Is(in, x.err) {
			t.Errorf("%q is another error", in)
		}
	}
	if wrapped := InFile(Fieldf[outer]("{Batch}: %w", Mark(ErrInput, io.EOF))); !errors.Is(wrapped, ErrInput) || !errors.Is(wrapped, io.EOF) || InFile(nil) != nil {
		t.Errorf("%v has lost its kind", wrapped)
	}
}
