package task

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/dataset"
)

// classFolder lists a folder that has one folder of files per class, or has such folders in
// train, valid and test.
type classFolder struct {
	classes []string
	files   [3][]classFile // by split
	ignored ignoredFiles

	isDivided bool // the folder has train
}

// classFile is a file with the number of its class.
type classFile struct {
	path  string
	class int32
}

// ignoredFiles counts the files of a folder that are not listed, by reason.
type ignoredFiles map[string]int

// IgnoredFiles says how many files in the folder of a source are not read, and why. It returns ""
// if there are none.
func IgnoredFiles(src Source) string {
	if s, ok := src.(*standardisedSource); ok {
		src = s.Source
	}
	reporter, ok := src.(interface{ ignoredFiles() ignoredFiles })
	if !ok {
		return ""
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(reporter.ignoredFiles())) {
		list = append(list, fmt.Sprintf("%d %s", reporter.ignoredFiles()[reason], reason))
	}
	return strings.Join(list, "; ")
}

func (c *classFolder) ignoredFiles() ignoredFiles { return c.ignored }

// splitNames are the names of the folders of splits, in lower case.
var splitNames = map[string]Split{"train": Train, "valid": Valid, "val": Valid, "validation": Valid, "test": Test}

// readClassFolder lists the files with one of the suffixes, plain or compressed, in the order of
// their names, and ignores names that begin with a dot. If there is no folder train, parts divides
// the files. readClassFolder returns an error if the folders of splits are ambiguous, if there are
// fewer than two classes, or if a class has no files. With scoreOnly one file is enough.
func readClassFolder(root string, parts splitter, scoreOnly bool, suffixes ...string) (*classFolder, error) {
	l := &fileLister{suffixes: suffixes, ignored: ignoredFiles{}}
	c := &classFolder{ignored: l.ignored}
	dirs, err := l.splitFolders(root)
	if err != nil {
		return nil, err
	}
	if dirs[Train] == "" {
		all, err := l.listClasses(&c.classes, root)
		if err != nil {
			return nil, err
		}
		classes := make([]int32, len(all))
		for i, f := range all {
			classes[i] = f.class
		}
		for i, split := range parts.split(classes) {
			c.files[split] = append(c.files[split], all[i])
		}
		return c, c.checkClasses(root, scoreOnly, suffixes, all)
	}
	c.isDivided = true
	for split, dir := range dirs {
		if dir == "" {
			continue
		}
		if c.files[split], err = l.listClasses(&c.classes, dir); err != nil {
			return nil, err
		}
	}
	return c, c.checkClasses(root, scoreOnly, suffixes, slices.Concat(c.files[:]...))
}

// checkClasses returns an error if there are fewer than two classes, no training files, or a
// class that none of the files has; with scoreOnly, if there are no files.
func (c *classFolder) checkClasses(root string, scoreOnly bool, suffixes []string, files []classFile) error {
	switch {
	case scoreOnly && len(files) == 0:
		return fmt.Errorf("%s: it holds %d folders without a file %s; a folder for each class is needed", root, len(c.classes), strings.Join(suffixes, ", "))
	case scoreOnly:
		return nil
	}
	if len(c.classes) < 2 || len(c.files[Train]) == 0 {
		return fmt.Errorf("%s: it holds %d folders with %d files %s to learn from; a folder for each of two classes or more is needed",
			root, len(c.classes), len(c.files[Train]), strings.Join(suffixes, ", "))
	}
	counts := make([]int, len(c.classes))
	for _, f := range files {
		counts[f.class]++
	}
	if class := slices.Index(counts, 0); class >= 0 {
		return fmt.Errorf("%s: the folder of class %q holds no file %s to learn from; remove it, or add files", root, c.classes[class], strings.Join(suffixes, ", "))
	}
	return nil
}

// checkTraining returns an error for the first class without training files.
func (c *classFolder) checkTraining() error {
	hasFiles := make([]bool, len(c.classes))
	for _, f := range c.files[Train] {
		hasFiles[f.class] = true
	}
	class := slices.Index(hasFiles, false)
	switch {
	case class < 0:
		return nil
	case c.isDivided:
		return fmt.Errorf("class %q: its folder in train holds no file to learn from; add files", c.classes[class])
	}
	return fmt.Errorf("class %q: the data seed draws none of its files to learn from; add files, draw with another seed, or divide the folder into train, valid and test", c.classes[class])
}

// CheckTrainingClasses returns an error if src reads the user's own files and no training sample
// has one of the classes, or if a file that is one text is empty.
func CheckTrainingClasses(src Source) error {
	if checker, ok := src.(interface{ checkTraining() error }); ok {
		return checker.checkTraining()
	}
	return nil
}

// countSamples returns the number of files by split.
func (c *classFolder) countSamples() [3]int {
	return [3]int{len(c.files[0]), len(c.files[1]), len(c.files[2])}
}

// isClassOrdered returns true: files are listed in the order of their classes.
func (c *classFolder) isClassOrdered() bool { return true }

// fileFolder lists a folder of files in any subfolders, or in subfolders of train, valid and
// test.
type fileFolder struct {
	files     [3][]classFile // of class 0; all in files[Train] unless isDivided
	dirs      [3]string      // folders of the splits; "": none
	isDivided bool           // the folder has train, and valid or test
	ignored   ignoredFiles
}

// readFileFolder lists the files with one of the suffixes, plain or compressed, in the order of their
// names. It ignores the file at path skip. It returns an error if the folders of splits are
// ambiguous or a folder cannot be read.
func readFileFolder(root, skip string, suffixes ...string) (*fileFolder, error) {
	l := &fileLister{suffixes: suffixes, skip: skip, ignored: ignoredFiles{}}
	c := &fileFolder{ignored: l.ignored}
	var err error
	if c.dirs, err = l.splitFolders(root); err != nil {
		return nil, err
	}
	if c.isDivided = c.dirs[Train] != "" && c.dirs[Valid]+c.dirs[Test] != ""; !c.isDivided {
		clear(l.ignored) // of files beside train, which are listed
		c.dirs = [3]string{root}
	}
	for split, dir := range c.dirs {
		if dir == "" {
			continue
		}
		if c.files[split], err = l.appendFiles(nil, dir, 0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// fileLister lists the files of folders.
type fileLister struct {
	suffixes []string     // of files that are listed, in lower case; nil: any
	skip     string       // path of a file that is neither listed nor counted; "": none
	ignored  ignoredFiles // files that are not listed
}

// splitFolders returns the folder in root of each split, "" for a split without one, and the number
// of files beside them. Folders hold splits if one has the name train, or if all have names of
// splits, in upper or lower case. splitFolders returns an error if two folders hold the same split,
// or none is train.
func (l *fileLister) splitFolders(root string) (dirs [3]string, err error) {
	entries, err := listEntries(root)
	if err != nil {
		return dirs, err
	}
	var found [3][]string
	var names []string // of folders of splits
	var others []folderEntry
	isDivided := false
	for _, e := range entries {
		name := filepath.Base(e.path)
		split, ok := splitNames[strings.ToLower(name)]
		switch {
		case e.kind.IsDir() && ok:
			found[split] = append(found[split], e.path)
			names = append(names, name)
			isDivided = isDivided || name == "train"
		default:
			others = append(others, e)
		}
	}
	isDivided = isDivided || len(names) > 0 && !slices.ContainsFunc(others, func(e folderEntry) bool { return e.kind.IsDir() })
	if !isDivided {
		return dirs, nil
	}
	for split, paths := range found {
		if len(paths) > 1 {
			return dirs, fmt.Errorf("%s: the folders %q hold the same split; one is needed", root, paths)
		}
		if len(paths) > 0 {
			dirs[split] = paths[0]
		}
	}
	if dirs[Train] == "" {
		return dirs, fmt.Errorf("%s: its folders are %q, and train, to learn from, is not there", root, names)
	}
	for _, e := range others {
		switch {
		case !e.kind.IsDir():
			l.ignore(e, "beside train")
		case !e.isListed:
			name := filepath.Base(e.path)
			err := walkFiles(e.path, func(f folderEntry) { l.ignore(f, fmt.Sprintf("in %q, beside train", name)) })
			if err != nil {
				l.ignore(e, fmt.Sprintf("in %q and more, beside train: %v", name, err))
			}
		}
	}
	return dirs, nil
}

// ignore counts a file that is not listed.
func (l *fileLister) ignore(e folderEntry, reason string) {
	if e.kind&fs.ModeSymlink != 0 {
		reason = "links without a target"
	}
	if e.path != l.skip && !e.isListed {
		l.ignored[reason]++
	}
}

// listClasses lists the files of a folder with one folder per class. The first call sets the
// classes. It returns an error if a later folder has another class.
func (l *fileLister) listClasses(classes *[]string, dir string) ([]classFile, error) {
	entries, err := listEntries(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		switch {
		case !e.kind.IsDir():
			l.ignore(e, "in no folder of a class")
		case !e.isListed:
			names = append(names, filepath.Base(e.path))
		}
	}
	names, _ = sortClasses(names)
	if *classes == nil {
		*classes = names
	}
	var list []classFile
	for _, name := range names {
		class := slices.Index(*classes, name)
		if class < 0 {
			return nil, fmt.Errorf("%s: class %q is not among those to learn from, %q", dir, name, *classes)
		}
		if list, err = l.appendFiles(list, filepath.Join(dir, name), int32(class)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// appendFiles appends the files in dir and its subfolders that have one of the suffixes, and
// counts the others.
func (l *fileLister) appendFiles(list []classFile, dir string, class int32) ([]classFile, error) {
	err := walkFiles(dir, func(e folderEntry) {
		suffix := strings.ToLower(filepath.Ext(e.path))
		inner := strings.ToLower(filepath.Ext(dataset.TrimSuffix(e.path)))
		switch {
		case !e.kind.IsRegular():
			l.ignore(e, "neither file nor folder")
		case len(l.suffixes) > 0 && !slices.Contains(l.suffixes, suffix) && !slices.Contains(l.suffixes, inner):
			l.ignore(e, fmt.Sprintf("with suffix %q", suffix))
		case !e.isListed && e.path != l.skip:
			list = append(list, classFile{e.path, class})
		}
	})
	return list, err
}

// folderEntry is an entry of a folder, or the target of a link.
type folderEntry struct {
	path     string      // below the folder that the user gives
	target   string      // absolute, without links
	kind     fs.FileMode // type of the target; fs.ModeSymlink: a link without one
	isListed bool        // the entry is a link to a place that is listed without it
}

// listEntries returns the entries of a folder in the order of their names, without names that
// begin with a dot. It returns an error if the folder cannot be read.
func listEntries(dir string) ([]folderEntry, error) {
	target, err := realPath(dir)
	if err != nil {
		return nil, err
	}
	return entriesBelow(target, folderEntry{path: dir, target: target})
}

// realPath returns the absolute path without links.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// entriesBelow is listEntries of a folder below root, which is listed with all its subfolders.
func entriesBelow(root string, dir folderEntry) ([]folderEntry, error) {
	entries, err := os.ReadDir(dir.path)
	if err != nil {
		return nil, err
	}
	var list []folderEntry
	for _, d := range entries {
		if strings.HasPrefix(d.Name(), ".") {
			continue
		}
		e := folderEntry{path: filepath.Join(dir.path, d.Name()), target: filepath.Join(dir.target, d.Name()), kind: d.Type()}
		if e.kind&fs.ModeSymlink != 0 {
			target, err := filepath.EvalSymlinks(e.target)
			if info, err2 := os.Stat(e.path); err == nil && err2 == nil {
				e.target, e.kind, e.isListed = target, info.Mode().Type(), isListedBelow(root, target)
			}
		}
		list = append(list, e)
	}
	return list, nil
}

// isListedBelow reports whether a path without links is root, or lies below root in folders
// whose names don't begin with a dot.
func isListedBelow(root, path string) bool {
	const separator = string(filepath.Separator)
	below, ok := strings.CutPrefix(path+separator, strings.TrimSuffix(root, separator)+separator)
	return ok && !strings.Contains(separator+below, separator+".")
}

// WalkFolders calls each with dir and all folders below it, including linked ones: with the path
// below dir, and the absolute path without links. It ignores names that begin with a dot. It
// returns an error if a folder cannot be read.
func WalkFolders(dir string, each func(path, target string)) error {
	root, err := realPath(dir)
	if err != nil {
		return err
	}
	each(dir, root)
	return walkEntries(dir, func(e folderEntry) {
		if e.kind.IsDir() {
			each(e.path, e.target)
		}
	})
}

// walkFiles is walkEntries for the entries that are no folders.
func walkFiles(dir string, each func(e folderEntry)) error {
	return walkEntries(dir, func(e folderEntry) {
		if !e.kind.IsDir() {
			each(e)
		}
	})
}

// walkEntries calls each with every entry in dir and its subfolders, in the order of
// filepath.WalkDir. It follows links and reads each folder once, so that it ends where links form a
// loop. It returns an error if a folder cannot be read.
func walkEntries(dir string, each func(e folderEntry)) error {
	root, err := realPath(dir)
	if err != nil {
		return err
	}
	read := map[string]bool{} // folders, by their targets
	var walk func(folder folderEntry) error
	walk = func(folder folderEntry) error {
		if read[folder.target] {
			return nil
		}
		read[folder.target] = true
		entries, err := entriesBelow(root, folder)
		if err != nil {
			return err
		}
		for _, e := range entries {
			each(e)
			if e.kind.IsDir() && !e.isListed {
				if err := walk(e); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(folderEntry{path: dir, target: root})
}
