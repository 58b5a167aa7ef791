package results

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/lab/reproduce"
)

// Folders of the reproductions: today, and in commits from before the laboratory had a
// folder of its own. Results of those commits are compared with the former files.
const (
	folder       = "internal/lab/reproduce/"
	formerFolder = "internal/reproduce/"
)

// former returns the path that the file at path had in the former folder, or "".
func former(path string) string {
	if rest, moved := strings.CutPrefix(path, folder); moved {
		return formerFolder + rest
	}
	return ""
}

// changed returns the files at paths whose code differs between two trees. A tree is a
// commit, or the working tree for "". Comments, tests and documents are ignored.
func changed(ctx context.Context, from, to string, paths []string) (files []string, err error) {
	args := []string{"diff", "--name-only", "--no-renames", from}
	if to != "" {
		args = append(args, to)
	}
	args = append(append(args, "--"), paths...)
	for _, path := range paths {
		if old := former(path); old != "" {
			args = append(args, old)
		}
	}
	list, err := git(ctx, append(args, ":!*_test.go", ":!*.md", ":!*/testdata/*")...)
	if err != nil {
		return nil, err
	}
	for _, path := range strings.Fields(list) {
		if rest, moved := strings.CutPrefix(path, formerFolder); moved {
			path = folder + rest
		}
		if slices.Contains(files, path) {
			continue
		}
		if !strings.HasSuffix(path, ".go") || !slices.Equal(code(text(ctx, from, path)), code(text(ctx, to, path))) {
			files = append(files, path)
		}
	}
	return files, nil
}

// text returns a file of a commit, or of the working tree if commit is "". It returns the
// file at the former path if there is none at path, and nothing if both are missing.
func text(ctx context.Context, commit, path string) []byte {
	if commit == "" {
		data, _ := os.ReadFile(path)
		return data
	}
	data, err := git(ctx, "show", commit+":"+path)
	if old := former(path); err != nil && old != "" {
		data, _ = git(ctx, "show", commit+":"+old)
	}
	return []byte(data)
}

// sameBits reports whether the row's trainings have the bits of build b although the
// code of their arithmetic has changed. This holds if a commit has the arithmetic of b
// and the digests of the row in the working tree. The digests of a tree are trusted,
// because main does not pass with others (reproduce.TestBits). A build before the first
// digests has the digests of a later commit with its arithmetic.
func (a *age) sameBits(b reproduce.Build, arithmetic []string) bool {
	now := a.row.Bits(string(text(a.ctx, "", reproduce.BitsFile)))
	wrote, err := git(a.ctx, "log", "--full-history", "--format=%H", "HEAD", "--", reproduce.BitsFile, former(reproduce.BitsFile))
	if err != nil {
		return false
	}
	for _, commit := range append([]string{b.Revision}, strings.Fields(wrote)...) {
		then := a.row.Bits(string(text(a.ctx, commit, reproduce.BitsFile)))
		if len(then) == 0 || !isSubmap(then, now) {
			continue
		}
		if files, err := changed(a.ctx, b.Revision, commit, arithmetic); err == nil && len(files) == 0 {
			return true
		}
	}
	return false
}

// isSubmap reports that all of a map is in another, which may have more.
func isSubmap[K, V comparable](part, all map[K]V) bool {
	for k, v := range part {
		if w, found := all[k]; !found || w != v {
			return false
		}
	}
	return true
}
