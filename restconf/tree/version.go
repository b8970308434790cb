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
// A datastore that was restored from a backup uses revisions again. So the tag also holds a
// digest: of the time of the last change, or of the content of the unit.
//
// State does not change it: a Version is for writers. State alone and read-only trees
// have none. External entries have no revision: if one is in the resource, the digest is also
// of its content, and the time is now.
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
	v, _ := t.versionAt(at, from)
	return v
}

// VersionAfter is the version of a resource that a write has made; it is empty if another
// write has changed the resource since.
func (t *Tree) VersionAfter(made Result, at Target) Version {
	v, revision := t.versionAt(at, t.store)
	if revision != made.Revision {
		return Version{}
	}
	return v
}

// versionAt returns the version of the resource at a target, and its revision.
func (t *Tree) versionAt(at Target, from reader) (Version, int64) {
	var c datastore.Change
	content := t.externalIn(at)
	external := content.any
	switch {
	case at.IsRoot():
		c = from.Changed(nil)
		content.addTime(c)
	case at.holdsUnits() || at.isListOfUnits():
		c = from.Changed(at.Top())
		content.addTime(c)
	case !external:
		doc, _ := at.document()
		u := from.Get(doc.Node(), doc.Last().Keys...) // before the time, on which no transaction relies
		c.Time = t.store.Changed(at.Top()).Time
		if u != nil {
			c.Revision = u.ModRevision
			content.add(u.Raw)
		}
	}
	tag := t.store.Identity() + "-" + strconv.FormatInt(c.Revision, 36)
	if content.any {
		tag += "-" + strconv.FormatUint(content.sum, 36)
	}
	if external {
		c.Time = time.Now()
	}
	return Version{tag, c.Time}, c.Revision
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

// digest sums up what tells two states of one revision apart, the same on every replica.
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

// addTime adds the time of a change. Without a change the time is this replica's own.
func (d *digest) addTime(c datastore.Change) {
	if c.Revision != 0 {
		d.add([]byte(strconv.FormatInt(c.Time.Unix(), 10)))
	}
}
