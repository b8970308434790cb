package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rectangle is classes that are all connected alike with all classes of another set.
type rectangle struct{ from, to []*class }

// rectangles covers pairs of classes. It groups by one side or by the other, whichever gives fewer.
func (f *fact) rectangles() []rectangle {
	from := map[*class]map[*class]bool{}
	for to, all := range f.to {
		for one := range all {
			if from[one] == nil {
				from[one] = map[*class]bool{}
			}
			from[one][to] = true
		}
	}
	byTo, byFrom := grouped(f.to), grouped(from)
	if len(byTo) <= len(byFrom) {
		return byTo
	}
	for i, r := range byFrom {
		byFrom[i] = rectangle{from: r.to, to: r.from}
	}
	return byFrom
}

// grouped puts the classes together that have the same others.
func grouped(others map[*class]map[*class]bool) (all []rectangle) {
	known := map[string]int{}
	for _, to := range slices.SortedFunc(maps.Keys(others), byName) {
		from := slices.SortedFunc(maps.Keys(others[to]), byName)
		var key strings.Builder
		for _, c := range from {
			fmt.Fprintf(&key, "%p ", c)
		}
		i, found := known[key.String()]
		if !found {
			i = len(all)
			known[key.String()] = i
			all = append(all, rectangle{from: from})
		}
		all[i].to = append(all[i].to, to)
	}
	return all
}

func byName(a, b *class) int { return cmp.Compare(a.name, b.name) }

// changes returns the facts for people: with pods instead of classes, both families together if
// they are alike, and sorted. First are the closed paths.
func (m *comparison) changes() []Change {
	var all []Change
	known := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(m.facts)) {
		f := m.facts[key]
		for _, r := range f.rectangles() {
			c := Change{From: m.group(r.from), To: m.group(r.to), Family: f.family, Opened: f.opened, Closed: f.closed}
			key := fmt.Sprint(c.From.withoutBlocks(), c.To.withoutBlocks(), c.Opened, c.Closed)
			i, found := known[key]
			if !found {
				known[key] = len(all)
				all = append(all, c)
				continue
			}
			if all[i].Family != c.Family {
				all[i].Family = 0
			}
			all[i].From.Blocks = append(all[i].From.Blocks, c.From.Blocks...)
			all[i].To.Blocks = append(all[i].To.Blocks, c.To.Blocks...)
		}
	}
	if !m.twoFamilies() {
		for i := range all {
			all[i].Family = 0
		}
	}
	slices.SortStableFunc(all, func(a, b Change) int {
		return cmp.Or(cmp.Compare(len(b.Closed), len(a.Closed)), cmp.Compare(fmt.Sprint(a.To), fmt.Sprint(b.To)))
	})
	return all
}

// twoFamilies reports whether there are pods of both families.
func (m *comparison) twoFamilies() bool {
	families := map[int]bool{}
	for _, c := range m.pods {
		families[familyOf(c.ends[0].after.addr)] = true
	}
	return families[4] && families[6]
}

// group returns the pods, nodes and blocks of classes.
func (m *comparison) group(classes []*class) (g Group) {
	pods, nodes := map[string]map[string]bool{}, map[string]bool{}
	for _, c := range classes {
		if c.block != nil {
			g.Blocks = append(g.Blocks, c.block)
		}
		for _, e := range c.ends {
			p := e.after.pod
			if p == nil {
				nodes[e.after.node] = true
				continue
			}
			if pods[p.Namespace] == nil {
				pods[p.Namespace] = map[string]bool{}
			}
			pods[p.Namespace][p.Name] = true
		}
	}
	g.AllPods = len(pods) > 0 && len(pods) == len(m.podCount)
	for _, namespace := range slices.Sorted(maps.Keys(pods)) {
		of := PodGroup{namespace, slices.Sorted(maps.Keys(pods[namespace])), len(pods[namespace]) == m.podCount[namespace]}
		g.Namespaces = append(g.Namespaces, of)
		g.AllPods = g.AllPods && of.All
	}
	g.Nodes = slices.Sorted(maps.Keys(nodes))
	g.AllNodes = len(nodes) > 0 && len(nodes) == m.nodeCount
	return g
}

// withoutBlocks returns the group without blocks, each of which belongs to one family.
func (g Group) withoutBlocks() Group {
	g.Blocks = nil
	return g
}
