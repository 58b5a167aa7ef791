package score

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/score"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

// Parts of a line have one number.
func TestPartsAreOneLine(t *testing.T) {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 1, Width: 8, Context: 8, Positions: model.Rotary, Mechanism: "linear", Tied: true,
	}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	s, err := score.New(m, token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	scored := &scoring{cmd: &Command{Top: 9}, e: &env.Env{Context: t.Context(), Stdout: io.Discard}, scorer: s, note: func([]byte) {}}
	for _, lines := range [][][]byte{{[]byte("a"), []byte("b")}, {[]byte("c\n"), []byte("d\n")}, {[]byte("e")}} {
		if err := scored.lines(lines); err != nil {
			t.Fatal(err)
		}
	}
	numbers, parts := map[string]int64{}, map[string]int64{}
	for _, x := range scored.top {
		numbers[x.Text], parts[x.Text] = x.Number, x.Part
	}
	for i, text := range []string{"a", "b", "c", "d", "e"} {
		if number, part := []int64{1, 1, 1, 2, 3}[i], []int64{0, 2, 3, 0, 0}[i]; numbers[text] != number || parts[text] != part {
			t.Errorf("%s is line %d, part %d; want line %d, part %d", text, numbers[text], parts[text], number, part)
		}
	}
	if scored.number != 3 || scored.parts != 1 {
		t.Errorf("%d lines, %d parts", scored.number, scored.parts)
	}
}

func TestTemplatesAreLinesWithoutTheirNumbers(t *testing.T) {
	for line, want := range map[string]string{
		"12:36:11 request 42 served in 3.5 ms":          "#:#:# request # served in #.# ms",
		"disk sda1   is gone":                           "disk # is gone",
		"key=DEADBEEF of decade":                        "key=# of decade",
		"id 0b1d3f9a-abcd-face-9d1f-c0ffeec0ffee, cafe": "id #-#-#-#-#, cafe",
		"user bob from 10.0.1.2":                        "user bob from #.#.#.#",
		"café \xff 7\tend":                              "café \xff #\tend",
		"":                                              "",
	} {
		if got := string(appendMasked(nil, []byte(line))); got != want {
			t.Errorf("%q is masked as %q, want %q", line, got, want)
		}
	}
}

func TestRarestTemplatesAreOddLines(t *testing.T) {
	var log, prose templates
	for i := range 1000 {
		line := fmt.Sprintf("request %d served\n", i)
		if i%100 == 50 {
			line = []string{"disk is gone\n", "out of memory\n"}[i/100%2]
		}
		if i == 700 {
			line = "certificate expired\n"
		}
		log.add([]byte(line), int64(i+1))
		prose.add(bytes.Repeat([]byte("x"), i%300), int64(i+1))
	}
	want := []Template{{1, 701, "certificate expired"}, {5, 51, "disk is gone"}, {5, 151, "out of memory"}}
	if got := log.rarest(3); !slices.Equal(got, want) {
		t.Errorf("rarest templates are %v, want %v", got, want)
	}
	if got := len(log.rarest(9)); got != 4 {
		t.Errorf("there are %d templates, want 4", got)
	}
	if got := prose.rarest(3); got != nil {
		t.Errorf("a text without templates has %v", got)
	}
}

func TestTimeOfALongTextIsTold(t *testing.T) {
	for _, c := range []struct {
		size, scored int64
		want         string // "": nothing
	}{
		{100 << 20, 128 << 10, "104857600 bytes will take about 27 minutes"},
		{20 << 20, 128 << 10, ""},
		{-1, 128 << 10, ""},
		{100 << 20, 0, ""},
	} {
		got := describeLongText("a b.log", c.size, c.scored, 2*time.Second)
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) || got != "" && !strings.Contains(got, "'a b.log' | sort | uniq -c") {
			t.Errorf("%d of %d bytes: %q, want %q", c.scored, c.size, got, c.want)
		}
	}
}
