package restconf

import (
	"encoding/binary"
	"hash/crc64"
	"net/http"
	"strconv"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// weak is before an entity-tag that is equal for what is alike.
const weak = "W/"

// inXML ends the entity-tag of an answer in XML.
const inXML = "+xml"

// validators tell one state of a configuration resource from another (RFC 8040
// sections 3.4.1 and 3.5). They are those of
//
//	the datastore                              its last change
//	a top container, a list, a container       the last change of anything in the top
//	that holds units                           container, deletions included
//	all else                                   the last change of its unit; the time is
//	                                           the top container's
//
// State does not change them: they are those to write on, and an answer with state in it
// is never 304. What is state alone, or in a read-only tree, has none. What comes from elsewhere (Foreign) has no revision: where it is in the
// resource, its content is in the tag, and the time is now.
//
// Entity-tags are strong: If-Match takes no others. So an answer in XML has another
// one than in JSON; a write takes either, since it is about the state.
type validators struct {
	state    string // what is in the tag's quotes; empty: the resource has none
	xml      bool
	modified time.Time
}

// tag is the entity-tag in quotes.
func (v validators) tag() string {
	if v.xml {
		return `"` + v.state + inXML + `"`
	}
	return `"` + v.state + `"`
}

// isTag tells whether a tag is that of the same answer.
func (v validators) isTag(tag string) bool { return v.state != "" && tag == v.tag() }

// isState tells whether a tag is that of the same state, in whichever encoding.
func (v validators) isState(tag string) bool {
	return v.state != "" && (tag == `"`+v.state+`"` || tag == `"`+v.state+inXML+`"`)
}

// set puts the validators into an answer's header.
func (v validators) set(h http.Header) {
	if v.state == "" {
		return
	}
	h["Etag"] = []string{v.tag()}
	h["Last-Modified"] = []string{v.modified.UTC().Format(http.TimeFormat)}
}

// seen is where validators are read: the datastore as it is, or a transaction that
// then relies on it.
type seen interface {
	Get(node *yang.Node, key ...string) *datastore.Unit
	Changed(top *yang.Node) datastore.Change
}

// hasValidators tells whether the resource at t has validators.
func (s *Server) hasValidators(q *request) bool {
	switch {
	case !q.tree.config || q.query.content == "nonconfig":
		return false
	case q.target.isRoot():
		return true
	}
	return s.writable(q.target.node())
}

// hasMore tells whether the answer has what its validators don't tell of: state, or the
// read-only trees of the whole datastore.
func (s *Server) hasMore(q *request) bool {
	return q.target.isRoot() || s.state[q.target.top()] != nil && q.wantsState()
}

// validatorsOf are those of a request's target, if it is there, in an answer of that
// media type.
func (s *Server) validatorsOf(q *request, from seen, m media) validators {
	if !s.hasValidators(q) {
		return validators{}
	}
	change, foreign := s.changeOf(q.target, from)
	return s.validators(change, foreign, m)
}

// validatorsAfter are those of what a write has made at t.
func (s *Server) validatorsAfter(made datastore.Change, q *request, t target) validators {
	m, err := q.dialect.accepted(q.http)
	if err != nil {
		m = q.dialect.media[0]
	}
	return s.validators(made, s.foreignIn(t), m)
}

// validators are made of a change, and of the content of what is foreign.
func (s *Server) validators(c datastore.Change, foreign digest, m media) validators {
	state := s.store.Identity() + "-" + strconv.FormatInt(c.Revision, 36)
	if foreign.any {
		state += "-" + strconv.FormatUint(foreign.sum, 36)
		c.Time = time.Now()
	}
	return validators{state: state, xml: m.isXML(), modified: c.Time}
}

// changeOf is the last change of what is at t, and a digest of what is foreign in it.
func (s *Server) changeOf(t target, from seen) (datastore.Change, digest) {
	foreign := s.foreignIn(t)
	switch {
	case t.isRoot():
		return from.Changed(nil), foreign
	case t.holdsUnits() || t.isListOfUnits():
		return from.Changed(t.top()), foreign
	case foreign.any:
		return datastore.Change{}, foreign
	}
	at, _ := t.document()
	u := from.Get(at.node(), at.last().keys...) // before the time, which is none that a transaction relies on
	change := s.store.Changed(t.top())
	change.Revision = 0
	if u != nil {
		change.Revision = u.ModRevision
	}
	return change, foreign
}

// isListOfUnits tells whether t is a whole list whose entries are units.
func (t target) isListOfUnits() bool { return t.last().isList() && isUnit(t.node()) }

// foreignIn is a digest of what is foreign in t, or of the foreign entry that t is
// in.
func (s *Server) foreignIn(t target) (d digest) {
	if t.isRoot() {
		return s.digestOf(s.foreignLists())
	}
	if i := t.unit(); i >= 0 {
		if f := s.foreign[t[i].node]; f != nil {
			d.add(f.Entry(t[i].keys[0]))
		}
		return d
	}
	if t.holdsUnits() || t.isListOfUnits() {
		return s.digestOf(t.top().Children)
	}
	return d
}

// foreignLists are the lists that have foreign entries, in the schema's order.
func (s *Server) foreignLists() (lists []*yang.Node) {
	for _, module := range s.cfg.Schema.Modules {
		for _, top := range module.Top {
			for _, list := range top.Children {
				if s.foreign[list] != nil {
					lists = append(lists, list)
				}
			}
		}
	}
	return lists
}

// digestOf is that of all foreign entries of those of these nodes that have some.
func (s *Server) digestOf(lists []*yang.Node) (d digest) {
	for _, list := range lists {
		if f := s.foreign[list]; f != nil {
			for _, raw := range f.Entries() {
				d.add(raw)
			}
		}
	}
	return d
}

// digest sums up the content of foreign entries, the same on every replica.
type digest struct {
	sum uint64
	any bool
}

var crcTable = crc64.MakeTable(crc64.ECMA)

// add adds one entry, if there is one. Its length keeps it apart from the next.
func (d *digest) add(raw []byte) {
	if raw == nil {
		return
	}
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(raw)))
	d.sum = crc64.Update(crc64.Update(d.sum, crcTable, size[:]), crcTable, raw)
	d.any = true
}

// precondition checks what the client's headers demand of the target of a write,
// within its transaction. What is not there and has to be, the write itself finds.
func (e *edit) precondition(q *request) error {
	c := conditionsOf(q.http.Header)
	if !c.given() || !e.server.hasValidators(q) {
		return nil
	}
	exists, err := e.exists(q.target)
	if err != nil {
		return err
	}
	_, makes := q.dialect.yangPatchOf(q.http) // what is not there too
	needed := q.http.Method == http.MethodDelete || q.http.Method == http.MethodPatch && !makes
	if !exists && needed {
		return nil
	}
	if c.verdict(e.server.validatorsOf(q, e.tx, media{}), exists, false) != 0 {
		return preconditionFailed(q.target)
	}
	return nil
}

// exists tells whether there is what t names.
func (e *edit) exists(t target) (bool, error) {
	if t.isRoot() {
		return true, nil
	}
	at, below := t.document()
	doc, err := e.loadWith(at, below)
	if found, isMissing := asErrors(err); isMissing && found[0].Tag == "data-missing" {
		return false, nil
	}
	return doc != nil, err
}

func preconditionFailed(t target) error {
	p := newProblem(http.StatusPreconditionFailed, "protocol", "operation-failed",
		"the resource is not as the request's conditions say: GET it, and try again with its new ETag")
	p.errors[0].Path = t.path()
	return p
}

// byAccept and noStore are values of an answer's headers. Caches can't keep an
// answer: state in it changes, and its validators don't.
var (
	byAccept = []string{"Accept"}
	noStore  = []string{"no-store"}
)
