package task

import (
	"crypto/sha256"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// powerTable returns a table of hours: a load that rises and repeats each day, and a temperature.
func powerTable(rows int) string {
	var b strings.Builder
	b.WriteString("time;load;celsius\n")
	for r := range rows {
		load := 1000 + 0.1*float64(r) + 20*math.Sin(2*math.Pi*float64(r)/24)
		fmt.Fprintf(&b, "2026-01-%02d %02d:00;%s;%d\n", 1+r/24, r%24, strings.Replace(fmt.Sprintf("%.3f", load), ".", ",", 1), r%7)
	}
	return b.String()
}

func TestForecastTargetsFollowInputs(t *testing.T) {
	path := filepath.Join(folderOf(t, map[string][]byte{"power.csv": []byte(powerTable(600))}), "power.csv")
	src := openSource(t, "forecast", Options{}, "data", path, "target", "load", "window", "30", "horizon", "5")
	holds(t, src)
	if s := src.Spec(); s.Count != [3]int{480 - 30 - 5 + 1, 60 - 5 + 1, 60 - 5 + 1} || s.Channels != 2 || s.Outputs != 5 || s.Length != 30 {
		t.Errorf("%+v", s)
	}
	if names := src.(ColumnNamer).ColumnNames(); fmt.Sprint(names) != "[load celsius]" {
		t.Errorf("columns %q", names)
	}
	// The test set is forecast from the rows before it.
	s := take(t, src, Test, 0)
	deviation := src.(ScaledSource).Scales().Deviation[0]
	load := func(r int) float64 { return 1000 + 0.1*float64(r) + 20*math.Sin(2*math.Pi*float64(r)/24) }
	if x := float64(s.Values[2*29]); math.Abs(x-load(539)) > 1e-3 {
		t.Errorf("the last input is %g, want %g", x, load(539))
	}
	for h, y := range s.Targets {
		if want := (load(540+h) - load(539)) / deviation; math.Abs(float64(y)-want) > 1e-3 {
			t.Errorf("target %d is %g, want %g", h, y, want)
		}
	}
	list, err := Baselines(src, 2000)
	if err != nil || len(list) != 3 {
		t.Fatalf("baselines %v, %v", list, err)
	}
	if list[1].Name != "the last season of 24 rows" || list[1].Score > 0.1*list[0].Score || list[2].Score > 0.1*list[1].Score {
		t.Errorf("baselines %+v", list)
	}
	if all := openSource(t, "forecast", Options{}, "data", path); all.Spec().Outputs != 2*12 {
		t.Errorf("%+v", all.Spec())
	}
}

func TestForecastsThatCannotBe(t *testing.T) {
	table := powerTable(100)
	for _, c := range []struct {
		table, want string
		set         []string
	}{
		{table, `target: column "lod": there is none; there are ["load" "celsius"]`, []string{"target", "lod"}},
		{table, `target: column "load" is named twice`, []string{"target", "load,load"}},
		{table, "it has 100 rows; a tenth of them must hold the horizon, 11 rows", []string{"horizon", "11", "window", "2"}},
		{table, "horizon: it is 0, 1 to 65536 are possible", []string{"horizon", "0"}},
		{table, "window: it is 0", []string{"window", "0"}},
		{"a,b\n" + strings.Repeat("1,2\n", 100), "a: it is 1 in all of the first 80 rows", []string{"window", "2", "horizon", "2"}},
		{"t,b\n2,1\n1,2\n", `t: row 2 below the header has "1" after "2"; rows must follow each other in time`, []string{"time", "t"}},
		{"t,b\n2,1\n3,\n", `line 3: b: "" is no finite number`, nil},
	} {
		path := filepath.Join(folderOf(t, map[string][]byte{"a.csv": []byte(c.table)}), "a.csv")
		set := map[string]string{"data": path}
		for i := 0; i < len(c.set); i += 2 {
			set[c.set[i]] = c.set[i+1]
		}
		if _, err := Open("forecast", Options{Settings: set}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error is %v, want %s", c.set, err, c.want)
		}
	}
}

func TestForecastReadsTheLastRows(t *testing.T) {
	folder := folderOf(t, map[string][]byte{"x.csv": []byte("date,a,b\n1 h,0,0\n2 h,3,18\n3 h,5,2\n"), "y.csv": []byte("b,a\n1,2\n1,2\n")})
	set := map[string]string{"window": "2", "horizon": "3", "target": "b"}
	known := ModelInfo{Channels: 2, Length: 2, Outputs: 3, Columns: []string{"a", "b"}, Scales: &Scales{[]float64{0}, []float64{4}}}
	q, err := Ask("forecast", set, known)
	if err != nil {
		t.Fatal(err)
	}
	list, err := q.ReadFile(filepath.Join(folder, "x.csv"))
	if err != nil || fmt.Sprint(list[0].Samples[0].Values, list[0].Last) != "[3 18 5 2] [2]" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := q.ReadFile(filepath.Join(folder, "y.csv")); err == nil || !strings.Contains(err.Error(), `columns: they are ["b" "a"], the model learned from ["a" "b"]`) {
		t.Errorf("error is %v", err)
	}
	set["window"] = "4"
	if q, err = Ask("forecast", set, known); err != nil {
		t.Fatal(err)
	}
	if _, err := q.ReadFile(filepath.Join(folder, "x.csv")); err == nil || !strings.Contains(err.Error(), "it has 3 rows of 2 columns, 4 or more of 2 are needed") {
		t.Errorf("error is %v", err)
	}
	if _, err := Ask("forecast", set, ModelInfo{Channels: 2, Outputs: 5}); err == nil || !strings.Contains(err.Error(), "scales: of 3 rows that are forecast and 5 outputs they are not known") {
		t.Errorf("error is %v", err)
	}
}

// A long table is hashed once, not once for each window that holds a number.
func TestLongTablesAreHashedOnce(t *testing.T) {
	sum := func(change func(*Forecast)) string {
		f := &Forecast{ForecastOptions: ForecastOptions{Window: 1 << 20}, values: make([]float64, 1<<17), targets: []int{0}}
		if change != nil {
			change(f)
		}
		d := &digester{Hash: sha256.New()}
		whole, err := f.hashData(d)
		if err != nil || !whole {
			t.Fatalf("hashed as a whole: %t, %v", whole, err)
		}
		return fmt.Sprintf("%x", d.Sum(nil))
	}
	same := sum(nil)
	if same != sum(func(f *Forecast) { f.values[5] = 0 }) {
		t.Error("sums of one table differ")
	}
	for i, change := range []func(*Forecast){
		func(f *Forecast) { f.values[0] = 1 }, func(f *Forecast) { f.values[1<<17-1] = 1 }, func(f *Forecast) { f.targets = []int{1} },
	} {
		if sum(change) == same {
			t.Errorf("change %d does not show", i)
		}
	}
	short := &Forecast{ForecastOptions: ForecastOptions{Window: 48}, values: make([]float64, 1000)}
	if whole, err := short.hashData(&digester{Hash: sha256.New()}); whole || err != nil {
		t.Errorf("a short table is hashed as a whole: %t, %v", whole, err)
	}
}
