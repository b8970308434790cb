package odlfake

import "maps"

// late is an elan-instance that Netvirt tags after some more requests.
type late struct {
	turns int
	stored
}

// stamp adds the leaves that Netvirt adds, now or later. The caller holds mu.
func (c *Controller) stamp(container string, e stored) {
	c.forgetDeleted(container, e)
	if elan, _ := e.value["elan-instance-name"].(string); container == elanInterfaces {
		if c.members[elan] == nil {
			c.members[elan] = map[string]bool{}
		}
		c.members[elan][e.key] = true
	}
	if container != elanInstances {
		return
	}
	if c.lag == 0 || e.value["elan-tag"] != nil {
		c.tagOne(e.value)
		return
	}
	c.untagged = append(c.untagged, late{c.lag, stored{e.list, e.key, maps.Clone(e.value)}})
}

const elanInstances, elanInterfaces = "elan:elan-instances", "elan:elan-interfaces"

// follow does what Netvirt does when an entry is deleted: with an elan-instance it deletes the
// elan-interfaces that it considers members. It does not know that an elan-interface has
// another elan-instance since an update. The caller holds mu.
func (c *Controller) follow(container string, gone stored) {
	switch container {
	case elanInterfaces:
		elan, _ := gone.value["elan-instance-name"].(string)
		delete(c.members[elan], gone.key)
	case elanInstances:
		members := c.members[gone.key]
		delete(c.members, gone.key)
		for name := range members {
			c.remove(elanInterfaces, "elan-interface", name)
		}
	}
}

func (c *Controller) tagOne(value map[string]any) {
	if value["elan-tag"] == nil {
		c.tag++
		value["elan-tag"] = c.tag
	}
	if value["mac-timeout"] == nil {
		value["mac-timeout"] = 300
	}
}

// tagLate tags the elan-instances that are due. The caller holds mu.
func (c *Controller) tagLate() {
	for i := range c.untagged {
		c.untagged[i].turns--
	}
	for len(c.untagged) > 0 && c.untagged[0].turns <= 0 {
		e := c.untagged[0]
		c.untagged = c.untagged[1:]
		c.tagOne(e.value)
		c.top(elanInstances).put(e.list, e.key, e.value)
	}
}
