package restconf

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Agents tells what of the trees and streams is a node's, and so is open to its
// agent. Nodes are known by their names. Everything else is closed to agents:
//
//	GET    of a stream that MayFollow
//	GET    of an entry of a list that MayRead
//	POST   of entries that MayWrite, to the container that holds them
//	DELETE of an entry that MayWrite
//
// All of it is below /rests, in the dialect of RFC 8040, and without query parameters
// that change what is written.
type Agents interface {
	MayFollow(node, stream string) bool
	// MayRead is about the entry with these keys, outermost list first.
	MayRead(node string, list *yang.Node, keys []string) bool
	// MayWrite is about an entry as it is to be made, or as it is and is to be deleted.
	MayWrite(node string, entry *yang.Data) bool
	// Admit reports why no such entries can be made for the node now; nil where they
	// can. It is called by one goroutine for each node, which has made, when it calls
	// again, what was admitted before. An *AdmissionError is told to the agent.
	Admit(ctx context.Context, node string, entries []*yang.Data) error
}

// AdmissionError says why an agent makes no more entries.
type AdmissionError struct {
	// Full says that the node has as many as it may have; otherwise agents make none.
	Full bool
	Says string
}

// Error implements error.
func (e *AdmissionError) Error() string { return e.Says }

// agentTree is where agents read and write.
var agentTree = tree{prefix: "/rests/data", dialect: rfc8040, config: true}

// serveAgent answers the agent of a node.
func (s *Server) serveAgent(w http.ResponseWriter, r *http.Request, node string, ending <-chan struct{}) {
	path := r.URL.EscapedPath()
	if name, is := strings.CutPrefix(path, streamsPrefix); is && s.mayFollow(node, name) {
		s.serveStream(w, r, rfc8040, name, ending, func(who access.Identity) bool {
			return who.Node == node && s.mayFollow(node, name)
		})
		return
	}
	if strings.HasPrefix(path, agentTree.prefix+"/") {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			reads := &heldBy(r).share.reads
			reads.Lock()
			defer reads.Unlock()
		}
		at := agentTree
		at.node = node
		s.serveTree(at)(w, r)
		return
	}
	s.fail(w, r, dialectOf(r), notTheNodes(node))
}

// mayFollow is for the name of a stream as it is in paths: that of a node's needs no
// escapes.
func (s *Server) mayFollow(node, name string) bool {
	return s.cfg.Agents != nil && !strings.ContainsAny(name, "%/") && s.cfg.Agents.MayFollow(node, name)
}

func notTheNodes(node string) error {
	return forbidden(fmt.Sprintf("the agent of node %s may follow the stream of that node, and make and delete pods of it, and nothing else; "+
		"the bridge has to know the node by that name and its address", node))
}

// confine refuses an agent what no agent may do, as far as method and path tell.
func (s *Server) confine(q *request) error {
	node := q.tree.node
	if node == "" {
		return nil
	}
	may := false
	if s.cfg.Agents != nil && !q.target.isRoot() {
		switch q.http.Method {
		case http.MethodGet, http.MethodHead:
			list, keys := q.target.entry()
			may = list != nil && s.cfg.Agents.MayRead(node, list, keys)
		case http.MethodPost:
			may = q.target.node().Kind == yang.Container && q.http.URL.RawQuery == ""
		case http.MethodDelete:
			list, _ := q.target.entry()
			may = list != nil && q.http.URL.RawQuery == ""
		}
	}
	if !may {
		return notTheNodes(node)
	}
	return nil
}

// entry is the list of the entry that t names, and the keys of it and of the entries
// that it lies in; list is nil where t names something else.
func (t target) entry() (list *yang.Node, keys []string) {
	if t.node().Kind != yang.List || t.last().keys == nil {
		return nil, nil
	}
	for _, s := range t {
		keys = append(keys, s.keys...)
	}
	return t.node(), keys
}

// confineEntries refuses an agent entries that are not its node's.
func (s *Server) confineEntries(q *request, entries []*yang.Data) error {
	if q.tree.node == "" {
		return nil
	}
	for _, e := range entries {
		if e.Node.Kind != yang.List || !s.cfg.Agents.MayWrite(q.tree.node, e) {
			return notTheNodes(q.tree.node)
		}
	}
	return nil
}

// admitEntries asks whether an agent may make entries. Until done is called no other
// request of the agent makes any.
func (s *Server) admitEntries(ctx context.Context, q *request, entries []*yang.Data) (done func(), err error) {
	node := q.tree.node
	if node == "" || q.http.Method != http.MethodPost {
		return func() {}, nil
	}
	writes := &heldBy(q.http).share.writes
	writes.Lock()
	err = s.cfg.Agents.Admit(ctx, node, entries)
	if err == nil {
		return writes.Unlock, nil
	}
	writes.Unlock()
	var refused *AdmissionError
	switch {
	case !errors.As(err, &refused):
		return nil, err
	case refused.Full:
		s.cfg.Limited(LimitPods)
		return nil, newProblem(http.StatusForbidden, "application", "resource-denied", refused.Says)
	}
	return nil, forbidden(refused.Says)
}

// confineDelete is confineEntries for what q deletes, as it is in the transaction.
// What is foreign is nobody's here.
func (e *edit) confineDelete(q *request) error {
	if q.tree.node == "" || q.http.Method != http.MethodDelete {
		return nil
	}
	at, below := q.target.document()
	if f := e.server.foreign[at.node()]; f != nil && f.Entry(at.last().keys[0]) != nil {
		return notTheNodes(q.tree.node)
	}
	entry, err := e.load(at)
	if err != nil || entry == nil {
		return err // that there is none is told by who deletes it
	}
	if entry = descend(entry, below); entry == nil {
		return nil
	}
	return e.server.confineEntries(q, []*yang.Data{entry})
}
