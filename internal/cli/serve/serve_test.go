package serve

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
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
