package fetch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Set is a data set.
type Set struct {
	Name, Doc string
	Terms     string
	Files     []File // that are fetched; none where it is generated or has to be at hand
	Generated bool   // farfield data generate makes it
	Parts     []Part // other files that tasks take in their place

	// check verifies the files together, where they have no checksums; checked
	// says by what.
	check   func(folder string) error
	checked string
}

// File is one file at its canonical addresses.
type File struct {
	Name   string   // in the folder of the set
	URLs   []string // the first that answers is taken
	Size   int64    // bytes; 0: not known
	SHA256 string   // in hexadecimal; "": not known
	MD5    string   // the same
	// ContentMD5 is that of what a file of gzip holds, whoever compressed it.
	ContentMD5 string
	Unpack     *Archive // nil: the file itself is the data
}

// Archive says what is taken out of a file, which is not kept.
type Archive struct {
	Members []Member
	// convert reads the whole archive instead, and writes Members itself.
	convert func(ctx context.Context, archive, folder string) error
}

// Member is a file of an archive.
type Member struct {
	Path string // in the archive; with a leading *, what its path ends in
	Name string // in the folder of the set
	Size int64  // bytes: exactly, where MD5 is known; else at most
	MD5  string // "": not known
}

// Part is what else of a set's data tasks can do with.
type Part struct {
	Doc   string
	All   bool // it is all of the set
	Files []string
}

// Lookup returns the set of that name. The error for a name that is not there
// lists those that are.
func Lookup(name string) (*Set, error) {
	var names []string
	for i := range sets {
		if sets[i].Name == name {
			return &sets[i], nil
		}
		names = append(names, sets[i].Name)
	}
	return nil, fmt.Errorf("data set %q: unknown; there are: %s", name, strings.Join(names, ", "))
}

// Sets returns the catalogue.
func Sets() []Set { return slices.Clone(sets) }

// Size returns the bytes of the files that are fetched, and whether all of them
// are known.
func (s *Set) Size() (bytes int64, known bool) {
	known = true
	for _, f := range s.Files {
		bytes += f.Size
		known = known && f.Size > 0
	}
	return bytes, known
}

// Verified says by what the files are verified.
func (s *Set) Verified() string {
	if len(s.Files) == 0 {
		return "-"
	}
	if s.checked != "" {
		return s.checked
	}
	var by []string
	for i := range s.Files {
		if how := s.Files[i].verified(); !slices.Contains(by, how) {
			by = append(by, how)
		}
	}
	return strings.Join(by, ", ")
}

// Proof says by what the files in a folder of sets are verified: as Verified does, or,
// of files without a published checksum, by what was observed when they were
// fetched.
func (s *Set) Proof(folder string) string {
	known, err := readObserved(filepath.Join(folder, s.Name))
	if err != nil || s.checked != "" || len(known) == 0 {
		return s.Verified()
	}
	var by []string
	for i := range s.Files {
		f := &s.Files[i]
		how := f.verified()
		for name := range f.results() {
			if note, ok := known[name]; ok && note != (observation{}) && !f.strong() {
				how = "no published checksum known; complete by " + note.Proof + ", unchanged by its SHA-256 since it was fetched"
			}
		}
		if !slices.Contains(by, how) {
			by = append(by, how)
		}
	}
	return strings.Join(by, ", ")
}

// verified says by what a file is verified.
func (f *File) verified() string {
	switch {
	case f.SHA256 != "" && f.ContentMD5 != "":
		return "SHA-256 or MD5 of the content"
	case f.SHA256 != "":
		return "SHA-256"
	case f.MD5 != "":
		return "size and MD5"
	case f.ContentMD5 != "":
		return "MD5 of the content"
	case f.Size > 0:
		return "size only, no published checksum known"
	}
	return "not verified: no published checksum known"
}

// State is what a folder has of a set.
type State struct {
	Whole   bool
	Part    *Part // which of Parts is there, where Whole is not so
	Partial int64 // bytes of downloads that were interrupted
}

// Ready reports whether tasks find what they need.
func (s State) Ready() bool { return s.Whole || s.Part != nil }

// State looks at the names and sizes in the folder of sets.
func (s *Set) State(folder string) State {
	var st State
	dir := filepath.Join(folder, s.Name)
	has := func(name string, size int64) bool {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil && info.Mode().IsRegular() && (size == 0 || info.Size() == size)
	}
	st.Whole = len(s.Files) > 0
	for i := range s.Files {
		f := &s.Files[i]
		if info, err := os.Stat(filepath.Join(dir, f.Name+partSuffix)); err == nil {
			st.Partial += info.Size()
		}
		for name, size := range f.results() {
			st.Whole = st.Whole && has(name, size)
		}
	}
	if st.Whole {
		return st
	}
	for i := range s.Parts {
		p := &s.Parts[i]
		if !slices.ContainsFunc(p.Files, func(name string) bool { return !has(name, 0) }) {
			st.Part = p
			break
		}
	}
	return st
}

// results returns the names of what a file becomes, and their sizes where they are
// known exactly.
func (f *File) results() map[string]int64 {
	if f.Unpack == nil {
		if f.ContentMD5 != "" {
			return map[string]int64{f.Name: 0} // whoever compressed it
		}
		return map[string]int64{f.Name: f.Size}
	}
	names := map[string]int64{}
	for _, m := range f.Unpack.Members {
		names[m.Name] = 0
		if m.MD5 != "" {
			names[m.Name] = m.Size
		}
	}
	return names
}
