package main

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// Every module that is linked has its reason in ARCHITECTURE.md.
func TestModulesAreNamed(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) == 0 {
		t.Fatal("the build does not know its modules")
	}
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Dependencies")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no section Dependencies")
	}
	for _, m := range info.Deps {
		if !strings.Contains(table, "`"+m.Path+"`") {
			t.Errorf("%s %s is linked, and not in ARCHITECTURE.md", m.Path, m.Version)
		}
	}
}
