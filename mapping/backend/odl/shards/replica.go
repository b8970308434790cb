package shards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// shard is a part of one of the two datastores.
type shard struct {
	name  string // "default", "inventory", …
	store string // "config" or "operational"
}

// shardOf returns the shard of a replica, which has the name MEMBER-shard-NAME-STORE.
func shardOf(id string) shard {
	_, rest, _ := strings.Cut(id, "-shard-")
	end := max(strings.LastIndexByte(rest, '-'), 0)
	return shard{rest[:end], strings.TrimPrefix(rest[end:], "-")}
}

// Leads is the role of a replica that leads, unless it has lost the majority.
const Leads = "Leader"

const follows = "Follower"

// Replica is a member's copy of a shard, as its JMX bean has it (ShardStatsMXBean of sal-distributed-datastore).
type Replica struct {
	Role      string `json:"RaftState"`
	Leader    string `json:"Leader"` // the replica that leads
	Waiting   int    `json:"PendingTxCommitQueueSize"`
	Committed int    `json:"CommittedTransactionsCount"`
}

// attributes are the attributes of a bean that a replica has.
const attributes = "RaftState,Leader,PendingTxCommitQueueSize,CommittedTransactionsCount"

// Replicas are the replicas of a member, by their names.
type Replicas map[string]Replica

// follow reports whether a replica of the same shard follows the leader.
func (all Replicas) follow(leader string) bool {
	for id, r := range all {
		if id != leader && shardOf(id) == shardOf(leader) && r.Role == follows && r.Leader == leader {
			return true
		}
	}
	return false
}

// Read reads the replicas of a member.
func Read(ctx context.Context, c *controller.Client, url string) (Replicas, error) {
	q := controller.Request{
		Method: http.MethodGet, URL: url + "/jolokia/read/org.opendaylight.controller:Category=Shards,*/" + attributes + "?mimeType=application/json",
		Media: "application/json", Timeout: answerTimeout, Small: true, Apart: true,
	}
	var answer struct {
		Status int                `json:"status"`
		Error  string             `json:"error"`
		Value  map[string]Replica `json:"value"`
	}
	err := c.Send(ctx, q, func(body io.Reader) error { return json.UnmarshalRead(body, &answer) })
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK { // Jolokia answers the request itself with 200
		return nil, fmt.Errorf("GET %s: %w: %d %s", q.URL, errNoShards, answer.Status, answer.Error)
	}
	all := Replicas{}
	for bean, r := range answer.Value {
		all[nameOf(bean)] = r
	}
	return all, nil
}

// nameOf returns the name of a bean, DOMAIN:KEY=VALUE,….
func nameOf(bean string) string {
	_, properties, _ := strings.Cut(bean, ":")
	for p := range strings.SplitSeq(properties, ",") {
		if name, found := strings.CutPrefix(p, "name="); found {
			return name
		}
	}
	return ""
}

// errNoShards reports that a member has no beans of shards.
var errNoShards = errors.New("the member has no shards")

// isAnswer reports whether a member has answered that it says nothing of its shards.
func isAnswer(err error) bool {
	var answer *controller.AnswerError
	return errors.As(err, &answer) || errors.Is(err, errNoShards)
}
