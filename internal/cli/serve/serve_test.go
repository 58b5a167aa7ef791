package serve

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func TestKeysMayFollowAByteOrderMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	for text, want := range map[string][]string{
		"\ufefffirst-key\r\nsecond-key\r\n": {"first-key", "second-key"},
		"\ufeff#comment\n\nsecond-key":      {"second-key"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if keys, err := readKeys(path); err != nil || !slices.Equal(keys, want) {
			t.Errorf("keys of %q are %q, want %q, %v", text, keys, want, err)
		}
	}
}

func TestKeysThatNoHeaderCarriesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	for _, key := range []string{"short", "two words", "schl\u00fcssel", "key-of-\u4e2d", "key\x7fof-eight"} {
		if err := os.WriteFile(path, []byte("first-key\n"+key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readKeys(path); err == nil || !strings.Contains(err.Error(), "line 2 is no key of at least 8 printable ASCII characters") {
			t.Errorf("%q: error is %v", key, err)
		}
	}
}

func TestCardHasTheContextOfSessions(t *testing.T) {
	c := model.Config{Kind: model.Decoder, Layers: 1, Heads: 1, Width: 8, Vocab: 9, Context: 16, Mechanism: "softmax", Positions: model.Learned, PositionTable: 32}
	if card, err := describeModel("", c); err != nil || card.Context != 32 {
		t.Errorf("context is %d, want 32: %v", card.Context, err)
	}
}

func TestTablesReadByRowAreNotPacked(t *testing.T) {
	c := model.Config{Kind: model.Decoder, Layers: 1, Heads: 1, Width: 8, Vocab: 9, Context: 16, Mechanism: "softmax", Positions: model.Learned}
	m, err := model.New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	for _, p := range m.Params().All() {
		if !strings.HasSuffix(p.Name, "embed.weight") && !strings.HasSuffix(p.Name, "position.weight") {
			want += int64(len(p.Data))
		}
	}
	if got := countPacked(c); got != want {
		t.Errorf("%d weights are packed, want %d", got, want)
	}
}

func TestOriginsAndNamesAreChecked(t *testing.T) {
	for _, origin := range []string{"", "example.org", "https://example.org/", "https://example.org/page", "*", "https://"} {
		c := Command{Addr: "127.0.0.1:0", Origin: []string{origin}}
		if _, err := c.options(); err == nil || !strings.HasPrefix(err.Error(), "--origin: ") {
			t.Errorf("%q: error is %v", origin, err)
		}
	}
	for _, names := range [][]string{{""}, {"a", "a"}, {"a\n"}} {
		c := Command{Addr: "127.0.0.1:0", Name: names}
		if _, err := c.options(); err == nil || !strings.HasPrefix(err.Error(), "--name: ") {
			t.Errorf("%q: error is %v", names, err)
		}
	}
	c := Command{Addr: "127.0.0.1:0", Name: []string{"a", "b/c"}, Origin: []string{"https://example.org:8443"}}
	if o, err := c.options(); err != nil || !slices.Equal(o.Origins, c.Origin) {
		t.Errorf("origins are %q, %v", o.Origins, err)
	}
}

func TestHostsAreNames(t *testing.T) {
	for _, name := range []string{"", ".", "example.org:8181", "http://example.org", "example.org/", " example.org", "a b", "[::1]"} {
		c := Command{Addr: "127.0.0.1:0", Host: []string{name}}
		if _, err := c.options(); err == nil || !strings.HasPrefix(err.Error(), "--host: ") {
			t.Errorf("%q: error is %v", name, err)
		}
	}
	c := Command{Addr: "server.example.org.:0", Host: []string{"search.example.org.", "::1"}}
	if o, err := c.options(); err != nil || !slices.Equal(o.Hosts, []string{"server.example.org", "search.example.org", "::1"}) {
		t.Errorf("names are %q, %v", o.Hosts, err)
	}
}
