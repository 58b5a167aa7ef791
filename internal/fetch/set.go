package fetch

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Set describes a data set of the catalogue.
type Set struct {
	Name, Doc string
	Terms     string
	Files     []File // files to fetch; empty: the data is generated, or the user has it
	Generated bool   // made by farfield data generate
	Parts     []Part // alternative files that tasks accept
	IsModel   bool   // a model, not a data set

}

// File is one file at its canonical addresses.
type File struct {
	Name   string   // name in the set's folder
	URLs   []string // addresses, tried in order
	Size   int64    // bytes; 0: unknown
	SHA256 string   // hexadecimal; "": unknown
	MD5    string   // hexadecimal; "": unknown
	// ContentMD5 is the MD5 of the decompressed content of a gzip file, which does not depend on
	// the compression.
	ContentMD5 string
	Unpack     *Archive // nil: the file itself is the data
}

// Archive lists the members to unpack from a file. The file itself is not kept.
type Archive struct {
	Members []Member
	// convert, if set, reads the archive and writes Members, instead of unpacking.
	convert func(ctx context.Context, archive, folder string) error
}

// Member is a file in an archive.
type Member struct {
	Path string // path in the archive; a leading * matches any beginning
	Name string // name in the set's folder
	Size int64  // bytes: exact if MD5 is known, otherwise an upper bound
	MD5  string // hexadecimal; "": unknown
}

// Part is an alternative form of a set's data, which tasks accept, too.
type Part struct {
	Doc     string
	IsWhole bool // the part holds the whole set
	Files   []string
}

// Lookup returns the set with the given name. If there is none, it returns an error that lists all
// names.
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

// LookupModel returns the model with the given name. If there is none, it returns an error that
// lists all names.
func LookupModel(name string) (*Set, error) {
	var names []string
	for i := range models {
		if models[i].Name == name {
			return &models[i], nil
		}
		names = append(names, models[i].Name)
	}
	return nil, fmt.Errorf("model %q: unknown; there are: %s", name, strings.Join(names, ", "))
}

// Models returns the catalogue of trained models, which are folders in the Hugging Face layout.
func Models() []Set { return slices.Clone(models) }

// title names the set in errors.
func (s *Set) title() string {
	if s.IsModel {
		return "model " + s.Name
	}
	return "data set " + s.Name
}

// Size returns the total bytes of the files to fetch. known is false if a size is unknown.
func (s *Set) Size() (bytes int64, known bool) {
	known = true
	for _, f := range s.Files {
		bytes += f.Size
		known = known && f.Size > 0
	}
	return bytes, known
}

// VerificationMethod says how the files are verified.
func (s *Set) VerificationMethod() string {
	if len(s.Files) == 0 {
		return "-"
	}
	var by []string
	for i := range s.Files {
		if how := s.Files[i].verificationMethod(); !slices.Contains(by, how) {
			by = append(by, how)
		}
	}
	return strings.Join(by, ", ")
}

// VerificationIn says how the files below folder are verified: by VerificationMethod or, if no
// checksum is published, by what was recorded when they were fetched.
func (s *Set) VerificationIn(folder string) string {
	dir := filepath.Join(folder, s.Name)
	known, err := readObserved(dir)
	if err != nil || len(s.Files) == 0 {
		return s.VerificationMethod()
	}
	var by []string
	for i := range s.Files {
		f := &s.Files[i]
		for _, name := range slices.Sorted(maps.Keys(f.resultSizes())) {
			if how := f.resultVerification(dir, name, known[name]); !slices.Contains(by, how) {
				by = append(by, how)
			}
		}
	}
	return strings.Join(by, ", ")
}

// resultVerification describes how a result in dir with an observation is verified. For a missing
// result it describes how the file is verified.
func (f *File) resultVerification(dir, name string, note observation) string {
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
	noted := "complete by " + note.Proof + ", unchanged by its SHA-256 since it was fetched"
	switch {
	case err != nil, f.Unpack == nil && f.isPublished(name):
		return f.verificationMethod()
	case f.isPublished(name): // a member
		return "size and MD5"
	case note != (observation{}) && f.hasChecksum():
		return noted
	case note != (observation{}):
		return "no published checksum known; " + noted
	case f.Unpack != nil:
		return "not verified: nothing was recorded when it was fetched"
	}
	return f.verificationMethod()
}

// verificationMethod describes how a file is verified.
func (f *File) verificationMethod() string {
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

// State describes what a folder has of a set.
type State struct {
	Complete     bool
	Part         *Part // the part that is there, if the set is not there as a whole
	PartialBytes int64 // bytes of interrupted downloads
}

// IsReady reports whether tasks find the data that they need.
func (s State) IsReady() bool { return s.Complete || s.Part != nil }

// State returns what the folder has of the set, judged by the names and sizes of files.
func (s *Set) State(folder string) State {
	var st State
	dir := filepath.Join(folder, s.Name)
	has := func(name string, size int64) bool {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err == nil && info.Mode().IsRegular() && (size == 0 || info.Size() == size)
	}
	st.Complete = len(s.Files) > 0
	for i := range s.Files {
		f := &s.Files[i]
		if info, err := os.Stat(filepath.Join(dir, f.Name+partSuffix)); err == nil {
			st.PartialBytes += info.Size()
		}
		for name, size := range f.resultSizes() {
			st.Complete = st.Complete && has(name, size)
		}
	}
	if st.Complete {
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

// resultSizes returns the names of the file's results, with their sizes where known exactly.
func (f *File) resultSizes() map[string]int64 {
	if f.Unpack == nil {
		if f.ContentMD5 != "" {
			return map[string]int64{f.Name: 0} // depends on the compression
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
