package task

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sines writes sequences of two periods and various lengths, in one folder per class, and a
// list of them.
func sines(t *testing.T) string {
	t.Helper()
	files, list := map[string][]byte{}, "file,label\n"
	for i := range 80 {
		var values []float32
		for k := range 20 + i%7 {
			values = append(values, float32(math.Sin(float64(k)*[]float64{0.3, 0.9}[i%2]+float64(i))))
		}
		name := fmt.Sprintf("data/%s/%02d.csv", []string{"slow", "fast"}[i%2], i)
		files[name] = linesOf(values, 1)
		list += fmt.Sprintf("%s,%d\n", strings.TrimPrefix(name, "data/"), 1000+10*(i%2))
	}
	files["data/list.csv"] = []byte(list)
	return folderOf(t, files)
}

func TestSeriesOfClassesHasPerfectStatisticsBaseline(t *testing.T) {
	dir := sines(t)
	src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(dir, "data")).(*OwnSeries)
	holds(t, src)
	spec := src.Spec()
	if spec.Length != 26 || spec.Channels != 1 || spec.Classes != 2 || spec.Count[0]+spec.Count[1]+spec.Count[2] != 80 || src.IsUnordered() {
		t.Errorf("%+v, classes %q", spec, src.ClassNames())
	}
	list, err := Baselines(src, 0)
	if err != nil || list[1].Name != "nearest mean of statistics" || list[1].Score != 1 || list[0].Score > 0.9 {
		t.Errorf("%+v, %v", list, err)
	}
	// A list has the same classes as the folders.
	same := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(dir, "data", "list.csv"), "points", "true", "length", "22").(*OwnSeries)
	if spec := same.Spec(); !slices.Equal(same.ClassNames(), []string{"1000", "1010"}) || spec.Length != 22 || !same.IsUnordered() {
		t.Errorf("%+v, classes %q", spec, same.ClassNames())
	}
}

// Targets are standardised by the training samples, and the regression on statistics equals
// least squares by plain normal equations.
func TestSeriesOfNumbersAreStandardised(t *testing.T) {
	src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(sines(t), "data", "list.csv"), "ask", "number").(*OwnSeries)
	holds(t, src)
	mean, squares, n := 0., 0., 0.
	for i := range src.Spec().Count[Train] {
		y := float64(take(t, src, Train, i).Targets[0])
		mean, squares, n = mean+y, squares+y*y, n+1
	}
	if math.Abs(mean/n) > 1e-6 || math.Abs(squares/n-1) > 1e-6 {
		t.Errorf("targets have mean %g and square %g", mean/n, squares/n)
	}
	s := src.Scales()
	y := float64(take(t, src, Test, 0).Targets[0])*s.Deviation[0] + s.Mean[0]
	if y = math.Round(y*1e3) / 1e3; y != 1000 && y != 1010 {
		t.Errorf("a number is %g", y)
	}
	list, err := Baselines(src, 0)
	if err != nil || list[0].Score < 0.5 || list[1].Score > 0.1 {
		t.Errorf("%+v, %v", list, err)
	}
	raw := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(sines(t), "data", "list.csv"), "ask", "number", "standardise", "false").(*OwnSeries)
	if y := take(t, raw, Test, 0).Targets[0]; raw.Scales() != nil || y != 1000 && y != 1010 {
		t.Errorf("a number is %g, scales %v", y, raw.Scales())
	}
}

// Files may lack names of columns; the others agree, to blanks around them.
func TestSeriesKnowsTheNamesOfItsColumns(t *testing.T) {
	files := map[string][]byte{}
	for i := range 30 {
		header := []string{"", "x,y\n", "x, y\n"}[i%3]
		files[fmt.Sprintf("data/%s/%02d.csv", string("ab"[i%2]), i)] = []byte(header + "1,2\n")
	}
	src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(folderOf(t, files), "data")).(*OwnSeries)
	if names := src.ColumnNames(); !slices.Equal(names, []string{"x", "y"}) || src.Spec().Length != 1 {
		t.Errorf("columns are %q", names)
	}
	q, err := Ask("series", nil, ModelInfo{Classes: []string{"a", "b"}, Channels: 2, Columns: src.ColumnNames(), Length: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := folderOf(t, map[string][]byte{"same.csv": []byte("x,y\n1,2\n"), "none.csv": []byte("1,2\n"), "order.csv": []byte("y,x\n1,2\n"), "wide.csv": []byte("x,y,z\n1,2,3\n")})
	for name, want := range map[string]string{
		"same.csv":  "",
		"none.csv":  "",
		"order.csv": `order.csv: columns: they are ["y" "x"], the model learned from ["x" "y"]; number 1 differs`,
		"wide.csv":  "wide.csv: its rows have 3 numbers, the model learned from 2",
	} {
		_, err := q.ReadFile(filepath.Join(dir, name))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: error is %v, want %q", name, err, want)
		}
	}
}

// Seconds since 1970 are standardised before they are rounded to 32 bits.
func TestSeriesStandardisesLargeNumbers(t *testing.T) {
	files := map[string][]byte{}
	for i := range 30 {
		files[fmt.Sprintf("data/%s/%02d.csv", string("ab"[i%2]), i)] = fmt.Appendf(nil, "%d,1\n%d,2\n%d,4\n", 1700000000, 1700000001, 1700000003)
	}
	dir := folderOf(t, files)
	src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(dir, "data"))
	mean, deviation, err := ChannelMoments(src)
	if err != nil {
		t.Fatal(err)
	}
	q, err := Ask("series", nil, ModelInfo{Classes: []string{"a", "b"}, Channels: 2, Length: 3})
	if err != nil {
		t.Fatal(err)
	}
	list, err := q.ReadFile(filepath.Join(dir, "data", "a", "00.csv"))
	if err != nil {
		t.Fatal(err)
	}
	q.SetInput(list[0])
	for split, src := range map[Split]Source{Train: src, Test: q} {
		standardised, err := Standardise(src, mean, deviation)
		if err != nil {
			t.Fatal(err)
		}
		s := take(t, standardised, split, 0)
		for i := 0; i < len(s.Values); i += 2 { // both columns are 0, 1, 3 but for a constant
			if d := math.Abs(float64(s.Values[i] - s.Values[i+1])); d > 1e-6 || len(s.Values64) > 0 {
				t.Errorf("%v: values are %v", split, s.Values)
			}
		}
	}
}

// Targets are standardised before they are rounded to 32 bits, and refused without.
func TestSeriesStandardisesLargeTargets(t *testing.T) {
	list := "file,label\n"
	for i := range 40 {
		list += fmt.Sprintf("x.csv,%d\n", 1700000000+i)
	}
	dir := folderOf(t, map[string][]byte{"x.csv": []byte("1\n"), "list.csv": []byte(list)})
	set := []string{"data", filepath.Join(dir, "list.csv"), "ask", "number"}
	src := openSource(t, "series", Options{Seed: 1}, set...).(*OwnSeries)
	first, second := take(t, src, Train, 0).Targets[0], take(t, src, Train, 1).Targets[0]
	if d := float64(second-first) * src.Scales().Deviation[0]; math.Abs(d-math.Round(d)) > 1e-4 || d < 0.5 {
		t.Errorf("targets are %g and %g", first, second)
	}
	_, err := Open("series", Options{Seed: 1, Settings: pairs(append(set, "standardise", "false"))})
	if err == nil || !strings.Contains(err.Error(), "list.csv: label: float32 rounds 1.70000000") {
		t.Errorf("error is %v", err)
	}
}

// Baselines read numbers before they are rounded to 32 bits.
func TestSeriesBaselinesReadLargeNumbers(t *testing.T) {
	for _, start := range []int{0, 1700000000} {
		files := map[string][]byte{}
		for i := range 20 {
			rows := "t,label\n"
			for k := range 9 {
				rows += fmt.Sprintf("%d,%d\n", start+2*k, k/3)
			}
			files[fmt.Sprintf("data/%02d.csv", i)] = []byte(rows)
		}
		src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(folderOf(t, files), "data"), "ask", "each")
		if list, err := Baselines(src, 0); err != nil || list[1].Score != 1 {
			t.Errorf("from %d: %+v, %v", start, list, err)
		}
		s := take(t, src, Train, 0)
		if got, want := appendStatistics(nil, &s, 1), []float64{float64(start + 8), math.Sqrt(80. / 3), float64(start), float64(start + 16), 2}; !slices.Equal(got, want) {
			t.Errorf("statistics are %v, want %v", got, want)
		}
	}
}

// Constants have deviation 1, whatever their number and the rounding of their sum.
func TestConstantStatisticsHaveDeviationOne(t *testing.T) {
	files, list := map[string][]byte{}, "file,label\n"
	for i := range 30 {
		name := fmt.Sprintf("%02d.csv", i)
		files[name] = []byte(strings.Repeat("0.1\n", 3+i%10))
		list += name + ",0.1\n"
	}
	files["list.csv"] = []byte(list)
	src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(folderOf(t, files), "list.csv"), "ask", "number").(*OwnSeries)
	d, _, err := readStatistics(src, 0, func(*Sample) {})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{1, 1, 1, 1, 1}; !slices.Equal(d.deviation, want) || !slices.Equal(d.rows[0], make([]float64, 5)) {
		t.Errorf("deviations %v, first row %v", d.deviation, d.rows[0])
	}
	if s := src.Scales(); s.Mean[0] != float64(float32(0.1)) || s.Deviation[0] != 1 || take(t, src, Test, 0).Targets[0] != 0 {
		t.Errorf("scales are %+v", s)
	}
}

// Wrapped sources keep the names of classes and the counts of cut sequences.
func TestSeriesReportsThroughWrappers(t *testing.T) {
	src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(sines(t), "data"), "length", "22").(*OwnSeries)
	standardised, err := Standardise(src, []float64{0}, []float64{1})
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	for i := range 80 {
		if 20+i%7 > 22 {
			cut++
		}
	}
	for _, s := range []Source{src, standardised, Pad(standardised)} {
		got, all := s.(TruncationReporter).CountTruncated()
		if names := s.(ClassNamer).ClassNames(); !slices.Equal(names, []string{"fast", "slow"}) || got != cut || all != 80 {
			t.Errorf("%T: classes %q, %d of %d are cut, want %d", s, names, got, all, cut)
		}
	}
	if wrapped := Pad(openSource(t, "copy", Options{})); wrapped.(ClassNamer).ClassNames() != nil {
		t.Error("task copy has names of classes")
	}
}

// Folders train, valid and test of tables are the splits, and predictions label all rows.
func TestSeriesOfLabelsHasTheSplitsOfItsFolder(t *testing.T) {
	files := map[string][]byte{}
	for i := range 12 {
		split := []string{"train", "train", "valid", "test"}[i%4]
		files[fmt.Sprintf("data/%s/%02d.csv", split, i)] = fmt.Appendf(nil, "x,label\n%d,on\n2,off\n", i)
	}
	dir := folderOf(t, files)
	data := filepath.Join(dir, "data")
	src := openSource(t, "series", Options{Seed: 1}, "data", data, "ask", "each").(*OwnSeries)
	holds(t, src)
	if spec := src.Spec(); spec.Count != [3]int{6, 3, 3} || take(t, src, Test, 1).Values[0] != 7 {
		t.Errorf("%+v, test sample %v", spec, take(t, src, Test, 1).Values)
	}
	q, err := Ask("series", map[string]string{"ask": "each"}, ModelInfo{Classes: src.ClassNames(), Channels: 1, Length: 2})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folderOf(t, map[string][]byte{"x.csv": []byte("1\n2\n3\n4\n5\n")}), "x.csv")
	if list, err := q.ReadFile(path); err != nil || len(list) != 1 || len(list[0].Samples) != 3 || len(list[0].Samples[2].Values) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := os.WriteFile(filepath.Join(data, "test", "03.csv"), []byte("x,label\n1,new\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"data": data, "ask": "each"}
	if _, err := Open("series", Options{Settings: set}); err == nil || !strings.Contains(err.Error(), `03.csv: label: class "new" is not among those to learn from, ["on" "off"]`) {
		t.Errorf("error is %v", err)
	}
}

func TestSolveIsTheInverse(t *testing.T) {
	a := []float64{4, 0, 0, 2, 5, 0, 1, 3, 6} // lower triangle
	x := []float64{1, -2, 3}
	b := []float64{4*1 + 2*-2 + 1*3, 2*1 + 5*-2 + 3*3, 1*1 + 3*-2 + 6*3}
	if err := solveCholesky(a, b); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		if math.Abs(b[i]-x[i]) > 1e-14 {
			t.Errorf("x is %v, want %v", b, x)
		}
	}
	if err := solveCholesky([]float64{1, 0, 1, 1}, []float64{1, 1}); err == nil {
		t.Error("a singular matrix is solved")
	}
}

func TestSeriesOfLabelsAreReadFromTables(t *testing.T) {
	files := map[string][]byte{}
	for i := range 60 {
		rows := "x,label,y\n"
		for k := range 5 + i%3 {
			rows += fmt.Sprintf("%d,%s,%d\n", k%2, []string{"off", "on"}[k%2], i)
		}
		files[fmt.Sprintf("data/%02d.csv", i)] = []byte(rows)
	}
	src := openSource(t, "series", Options{Seed: 1}, "data", filepath.Join(folderOf(t, files), "data"), "ask", "each", "length", "6").(*OwnSeries)
	holds(t, src)
	s := take(t, src, Train, 0)
	if spec := src.Spec(); spec.Length != 6 || spec.Channels != 2 || !slices.Equal(src.ClassNames(), []string{"off", "on"}) || fmt.Sprint(s.Labels[:4]) != "[0 1 0 1]" {
		t.Errorf("%+v, %q, labels %v", src.Spec(), src.ClassNames(), s.Labels)
	}
	if list, err := Baselines(src, 0); err != nil || list[1].Score != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestSeriesRefusesMalformedData(t *testing.T) {
	many := func(namesAndContents ...string) map[string][]byte {
		files := map[string][]byte{}
		for i := range 30 {
			files[fmt.Sprintf("data/%s/%02d.csv", string("ab"[i%2]), i)] = []byte("1,2\n")
		}
		for name, content := range pairs(namesAndContents) {
			files["data/"+name] = []byte(content)
		}
		return files
	}
	for _, c := range []struct {
		files map[string][]byte
		set   []string
		want  string
	}{
		{many("b/29.csv", "1\n"), nil, "b/29.csv: its rows have 1 numbers, those of the first file 2"},
		{many("b/29.csv", "y,x\n2,3\n4,?\n"), nil, `b/29.csv: line 3: column 2: "?" is no finite number`},
		{many("a/00.csv", "x,y\n1,2\n", "b/29.csv", "y,x\n1,2\n"), nil, `b/29.csv ["y" "x"]; number 1 differs`},
		{many("a/00.csv", "x,y\n1,2\n", "b/29.csv", "x,z\n1,2\n"), nil, `b/29.csv ["x" "z"]; number 2 differs`},
		{many("b/29.csv", "1,\n2,3\n"), nil, `b/29.csv: line 1: column 2: "" is no finite number`},
		{many("b/29.npy", "x"), nil, "b/29.npy: "},
		{many("x", ""), []string{"ask", "number"}, "which says no numbers; a list of files with a column"},
		{many("x", ""), []string{"ask", "each"}, `column "label": there is none`},
		{map[string][]byte{"data/1.csv": []byte("x,label\n1,a\n2,\n")}, []string{"ask", "each"}, "1.csv: row 1: label is empty"},
		{many("x", ""), []string{"ask", "all"}, `setting ask: "all" is none of class, number, each`},
		{many("x", ""), []string{"length", "0"}, "length: it is 0"},
		{map[string][]byte{"data/a/1.txt": nil}, nil, "it holds 1 folders with 0 files .csv, .tsv, .npy"},
		{map[string][]byte{"data": []byte("1\n")}, nil, "its name ends in .csv or .tsv"},
		{map[string][]byte{"x": nil}, nil, "data: stat"},
	} {
		set := append([]string{"data", filepath.Join(folderOf(t, c.files), "data")}, c.set...)
		if _, err := Open("series", Options{Seed: 1, Settings: pairs(set)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error is %v, want %s", c.set, err, c.want)
		}
	}
	unlabelled := filepath.Join(folderOf(t, map[string][]byte{"a.csv": []byte("file,label\nx.csv,a\nx.csv, \n")}), "a.csv")
	if _, err := Open("series", Options{Settings: pairs([]string{"data", unlabelled})}); err == nil || !strings.Contains(err.Error(), "a.csv: row 1: label is empty") {
		t.Errorf("error is %v", err)
	}
	list := folderOf(t, map[string][]byte{"a.csv": []byte("file,label\nx.csv,1\nx.csv,y\n"), "x.csv": []byte("1\n"), "b.csv": []byte("file,class\nx.csv,1\n"), "c.csv": []byte("file,label\nnone.csv,1\n")})
	for name, want := range map[string]string{
		"a.csv": `a.csv: row 1: label is "y", a finite number is needed`,
		"b.csv": `b.csv: column "label": there is none; there are ["file" "class"]`,
		"c.csv": "c.csv: row 0: open ",
	} {
		if _, err := Open("series", Options{Settings: pairs([]string{"data", filepath.Join(list, name), "ask", "number"})}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", name, err, want)
		}
	}
}

// pairs returns settings of alternating names and values.
func pairs(list []string) map[string]string {
	set := map[string]string{}
	for p := range slices.Chunk(list, 2) {
		set[p[0]] = p[1]
	}
	return set
}
