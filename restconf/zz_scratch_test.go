package restconf

import ("testing";"fmt")

func BenchmarkZZTree(b *testing.B) {
	w := newWorld(b)
	uids := make([]string, 5000)
	for i := range uids { uids[i] = fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i) }
	w.speak(uids...)
	top := w.cfg.Schema.Module("pod").Child("coe")
	b.ReportAllocs()
	for b.Loop() { w.tree(top) }
}
