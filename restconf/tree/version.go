package tree

import (
	"encoding/binary"
	"hash/crc64"
	"strconv"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Version tells one state of a configuration resource from another (RFC 8040 sections
// 3.4.1 and 3.5). It is that of
//
//	the datastore                              its last change
//	a top container, a list, a container       the last change of anything in the top
//	that holds units                           container, deletes included
//	everything else                            the last change of its unit; the time is
//	                                           the top container's
//
// State does not change it: a Version is for writers. State alone and read-only trees
// have none. External entries have no revision: if one is in the resource, the tag holds a
// digest of its content, and the time is now.
type Version struct {
	Tag      string // empty: the resource has no version
	Modified time.Time
}

// reader is where a version is read: the datastore, or a transaction that then relies on
// it.
type reader interface {
	Get(node *yang.Node, key ...string) *datastore.Unit
	Changed(top *yang.Node) datastore.Change
}

// Version is that of the resource of a question. A read asks for it before it reads: an
// older version of newer data does no harm.
func (t *Tree) Version(q Question) Version {
	if !q.Part.hasVersion() || !q.At.IsRoot() && !t.Writable(q.At.Node()) {
		return Version{}
	}
	return t.version(q.At, t.store)
}

func (t *Tree) version(at Target, from reader) Version {
	change, external := t.changeOf(at, from)
	return t.versionOf(change, external)
}

// VersionAfter is the version of a resource that a write has made.
func (t *Tree) VersionAfter(made Result, at Target) Version {
	return t.versionOf(made.Change, t.externalIn(at))
}

func (t *Tree) versionOf(c datastore.Change, external digest) Version {
	tag := t.store.Identity() + "-" + strconv.FormatInt(c.Revision, 36)
	if external.any {
		tag += "-" + strconv.FormatUint(external.sum, 36)
		c.Time = time.Now()
	}
	return Version{tag, c.Time}
}

// changeOf is the last change of the resource at a target, and a digest of the external
// entries in it.
func (t *Tree) changeOf(at Target, from reader) (datastore.Change, digest) {
	external := t.externalIn(at)
	switch {
	case at.IsRoot():
		return from.Changed(nil), external
	case at.holdsUnits() || at.isListOfUnits():
		return from.Changed(at.Top()), external
	case external.any:
		return datastore.Change{}, external
	}
	doc, _ := at.document()
	u := from.Get(doc.Node(), doc.Last().Keys...) // before the time, on which no transaction relies
	change := t.store.Changed(at.Top())
	change.Revision = 0
	if u != nil {
		change.Revision = u.ModRevision
	}
	return change, external
}

// externalIn is a digest of the external entries in a resource, or of the external entry
// that the resource lies in.
func (t *Tree) externalIn(at Target) (d digest) {
	if at.IsRoot() {
		for _, module := range t.schema.Modules {
			for _, top := range module.Top {
				t.digest(&d, top)
			}
		}
		return d
	}
	if i := at.unit(); i >= 0 {
		if external := t.external[at[i].Node]; external != nil {
			d.add(external.Entry(at[i].Keys[0]))
		}
		return d
	}
	if at.holdsUnits() || at.isListOfUnits() {
		t.digest(&d, at.Top())
	}
	return d
}

// digest adds all external entries of a top container.
func (t *Tree) digest(d *digest, top *yang.Node) {
	for _, list := range top.Children {
		if external := t.external[list]; external != nil {
			for _, raw := range external.Entries() {
				d.add(raw)
			}
		}
	}
}

// digest sums up the content of external entries, the same on every replica.
type digest struct {
	sum uint64
	any bool
}

var crcTable = crc64.MakeTable(crc64.ECMA)

// add adds an entry, if there is one. Its length separates it from the next.
func (d *digest) add(raw []byte) {
	if raw == nil {
		return
	}
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(raw)))
	d.sum = crc64.Update(crc64.Update(d.sum, crcTable, size[:]), crcTable, raw)
	d.any = true
}
