package restconf

import (
	"bytes"
	"context"
	"net/http"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// get answers GET and HEAD.
func (s *Server) get(w http.ResponseWriter, q *request) error {
	m, err := q.dialect.accepted(q.http)
	if err != nil {
		return err
	}
	if q.dialect.draft && !q.target.isRoot() && isLeaf(q.target.node()) {
		return badPath(q.target, q.target.node().Name+" is a leaf: GET what holds it")
	}
	ctx, cancel := context.WithTimeout(q.http.Context(), s.cfg.Timeout)
	defer cancel()
	v := s.validatorsOf(q, s.store, m) // before the data: an older tag of newer data does no harm
	body, ok := s.stored(q, m)
	if !ok {
		if body, err = s.rendered(ctx, q, m); err != nil {
			return err
		}
	}
	if body == nil {
		return q.dialect.missingGet(q.target)
	}
	return s.answerData(w, q, m, v, body)
}

// answerData answers a GET or HEAD as its preconditions have it.
func (s *Server) answerData(w http.ResponseWriter, q *request, m media, v validators, body []byte) error {
	verdict := conditionsOf(q.http.Header).verdict(v, true, true)
	switch {
	case verdict == http.StatusPreconditionFailed:
		return preconditionFailed(q.target)
	case s.hasMore(q):
		verdict = 0
	}
	h := w.Header()
	h["Vary"] = byAccept
	v.set(h)
	if verdict != 0 {
		w.WriteHeader(verdict)
		return nil
	}
	send(w, http.StatusOK, m.name, body)
	return nil
}

func isLeaf(n *yang.Node) bool { return n.Kind == yang.Leaf || n.Kind == yang.LeafList }

// stored makes the answer of units as they are, without parsing them; ok is false
// where the answer needs more than that.
func (s *Server) stored(q *request, m media) (body []byte, ok bool) {
	if _, json := m.codec.(jsonCodec); !json || q.target.isRoot() || q.query.trims() || q.query.content == "nonconfig" {
		return nil, false
	}
	top := q.target.top()
	if !s.writable(top) || (s.state[top] != nil && q.wantsState()) {
		return nil, false
	}
	node, last := q.target.node(), q.target.last()
	switch {
	case node == top && flat(top):
		return q.dialect.joinUnits(top, s.tree(top)), true
	case node.Kind == yang.List && last.keys != nil && datastore.UnitNode(node) == node:
		return q.dialect.oneUnit(s.unit(node, last.keys)), true
	}
	return nil, false
}

// flat tells whether all units of top are in lists right below it.
func flat(top *yang.Node) bool {
	for _, list := range datastore.UnitLists(top) {
		if list.Parent != top {
			return false
		}
	}
	return true
}

// member is the quoted name of a top-level member and its colon.
func (d *dialect) member(n *yang.Node) string {
	if d.style == yang.Draft02 {
		return `"` + n.Name + `":`
	}
	return `"` + n.Module.Name + `:` + n.Name + `":`
}

// oneUnit is {"list":[entry]}, or nil for no unit.
func (d *dialect) oneUnit(u *datastore.Unit) []byte {
	if u == nil {
		return nil
	}
	name := d.member(u.Node)
	body := make([]byte, 0, len(name)+len(u.Raw)+4)
	body = append(append(body, '{'), name...)
	body = append(append(body, '['), u.Raw...)
	return append(body, ']', '}')
}

// joinUnits is {"container":{…,"list":[entry,…]}}, or nil for no units.
func (d *dialect) joinUnits(top *yang.Node, units []*datastore.Unit) []byte {
	if len(units) == 0 {
		return nil
	}
	var buf bytes.Buffer
	buf.Grow(sizeOf(units))
	buf.WriteString("{" + d.member(top) + "{")
	if own := units[0]; own.Node == top {
		buf.Write(own.Raw[1 : len(own.Raw)-1])
		units = units[1:]
	}
	var list *yang.Node
	for _, u := range units {
		switch {
		case u.Node == list:
			buf.WriteByte(',')
		case list != nil:
			buf.WriteString("],")
		case buf.Bytes()[buf.Len()-1] != '{':
			buf.WriteByte(',')
		}
		if u.Node != list {
			list = u.Node
			buf.WriteString(memberBelow(list) + "[")
		}
		buf.Write(u.Raw)
	}
	if list != nil {
		buf.WriteByte(']')
	}
	buf.WriteString("}}")
	return buf.Bytes()
}

// sizeOf is about how many bytes units take in an answer.
func sizeOf(units []*datastore.Unit) int {
	n := 256
	for _, u := range units {
		n += len(u.Raw) + 1
	}
	return n
}

// memberBelow is the quoted name of a member of n's parent, and its colon.
func memberBelow(n *yang.Node) string {
	if n.Parent.Module == n.Module {
		return `"` + n.Name + `":`
	}
	return `"` + n.Module.Name + ":" + n.Name + `":`
}

// rendered makes the answer from parsed data; nil where there are none.
func (s *Server) rendered(ctx context.Context, q *request, m media) ([]byte, error) {
	found, err := s.find(ctx, q)
	if err != nil {
		return nil, err
	}
	if found, err = s.trim(q, found); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	switch {
	case q.target.isRoot():
		m.codec.encodeAll(&buf, q.dialect, found)
	case len(found) == 0:
		return nil, nil
	case len(found) > 1 && m.isXML():
		return nil, manyInXML(q.target)
	default:
		m.codec.encode(&buf, found, q.dialect.style)
	}
	if !q.query.pretty {
		return buf.Bytes(), nil
	}
	return m.codec.indent(buf.Bytes())
}

// find are the instances that the target names: all entries where it is a list,
// all top containers where it is the datastore.
func (s *Server) find(ctx context.Context, q *request) ([]*yang.Data, error) {
	if !q.target.isRoot() {
		top, err := s.load(ctx, q, q.target.top(), s.units(q, q.target.top()))
		if top == nil || err != nil {
			return nil, err
		}
		if found := descendAll(top, q.target[1:]); len(found) > 0 {
			return found, nil
		}
		return q.defaultLeaf(top), nil
	}
	stored := s.store.All() // at one revision: a transaction may be in several containers
	var all []*yang.Data
	for _, module := range s.cfg.Schema.Modules {
		for _, node := range module.Top {
			top, err := s.load(ctx, q, node, s.withForeign(node, stored[node]))
			if err != nil {
				return nil, err
			}
			if top != nil {
				all = append(all, top)
			}
		}
	}
	return all, nil
}

// load is a top container as the request's tree shows it, or nil; units are those of it
// that clients see.
//
//	                     config                     operational
//	writable             the datastore, and what    the first column and the state
//	                     is foreign
//	read-only            the source's config        the source's state
//	RFC 8040, content    config: the first column; nonconfig: state nodes of the
//	                     second; all: both
func (s *Server) load(ctx context.Context, q *request, top *yang.Node, units []*datastore.Unit) (*yang.Data, error) {
	source := s.state[top]
	var config *yang.Data
	var err error
	if fixed, ok := s.readOnly[top]; ok {
		source = fixed.Source
		if top.Config && q.tree.config && q.query.content != "nonconfig" {
			config, err = source.Get(ctx, q.asked(ContentConfig, top))
		}
	} else {
		config, err = join(top, units)
	}
	if err != nil || source == nil || !q.wantsState() {
		return config, err
	}
	state, err := source.Get(ctx, q.asked(ContentOperational, top))
	if state != nil && q.tree.config {
		state = trimState(state)
	}
	switch {
	case err != nil || state == nil:
		return config, err
	case config == nil:
		return state, nil
	}
	return yang.Merge(config, state), nil
}

// asked is what the request wants of a source.
func (q *request) asked(content Content, top *yang.Node) Asked {
	a := Asked{Content: content, Top: top, Base: baseOf(q.http)}
	if len(q.target) > 1 && q.target[1].node.Kind == yang.List {
		a.Entry = q.target[1].keys
		if len(q.target) > 2 && q.target[2].node.Kind == yang.List {
			a.Within = q.target[2].keys
		}
	}
	return a
}

// units are those of top that the target can be in; a read-only tree has none.
func (s *Server) units(q *request, top *yang.Node) []*datastore.Unit {
	if _, fixed := s.readOnly[top]; fixed {
		return nil
	}
	if i := q.target.unit(); i >= 0 {
		if u := s.unit(q.target[i].node, q.target[i].keys); u != nil {
			return []*datastore.Unit{u}
		}
		return nil
	}
	return s.tree(top)
}

// trim leaves of the data what the query asks for.
func (s *Server) trim(q *request, found []*yang.Data) ([]*yang.Data, error) {
	trim, err := s.trimmer(q)
	if err != nil {
		return nil, err
	}
	var left, added []*yang.Data
	for _, d := range found {
		switch {
		case !q.tree.config: // draft-02's operational tree has both
		case q.query.content == "config", q.dialect.draft:
			d = trimConfig(d)
		case q.query.content == "nonconfig":
			d = trimState(d)
		}
		if d != nil {
			d = q.withDefaults(d, &added)
		}
		if d != nil {
			d = trim(d)
		}
		if d != nil {
			left = append(left, d)
		}
	}
	if q.query.defaults == reportAllTagged {
		for _, leaf := range added {
			yang.TagDefault(leaf)
		}
	}
	return left, nil
}

// trimmer is what fields and depth do to each of the data found; nil is nothing
// left. Where the target is the datastore, that is the first level.
func (s *Server) trimmer(q *request) (func(*yang.Data) *yang.Data, error) {
	depth := q.query.depth
	if q.query.fields != "" {
		sel, err := parseFields(s.cfg.Schema, q.target.schema(), q.query.fields)
		if err != nil {
			return nil, err
		}
		return func(d *yang.Data) *yang.Data {
			if !q.target.isRoot() {
				return trimFields(d, sel, depth)
			}
			if below := sel.below[d.Node]; below != nil {
				return trimFields(d, below, depth)
			}
			return nil
		}, nil
	}
	return func(d *yang.Data) *yang.Data {
		switch {
		case !q.target.isRoot() || depth == 0:
			return trimDepth(d, depth, q.dialect.draft)
		case depth == 1:
			return nil
		}
		return trimDepth(d, depth-1, q.dialect.draft)
	}, nil
}
