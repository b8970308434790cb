*** Settings ***
Documentation       Pods: one and many, their interfaces, and their way from node to node.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin With Nothing
Test Teardown       Remove All Entries

Test Tags           pods


*** Variables ***
${PODS}             ${DRAFT02.data}/${POD.container}
${ENTRY}            ${PODS}/pods/${POD_UID}
${INTERFACE}        ${NAMESPACE}:${POD_NAME}


*** Test Cases ***
A Pod Comes And Goes In Draft-02
    [Tags]    odl
    Entry Comes And Goes    ${DRAFT02}    ${POD}

A Pod Comes And Goes In RFC 8040
    Entry Comes And Goes    ${RFC8040}    ${POD}

A Pod Can Be Sent As XML
    XML Is Taken    ${DRAFT02}    ${POD}
    Request    DELETE    ${PODS}    expected=200
    XML Is Taken    ${RFC8040}    ${POD}

A Pod Written In One Dialect Is Read In The Other
    ${body}=    Body    pod.json
    Request    PUT    ${ENTRY}    ${body}    expected=201
    Entry Should Be    ${RFC8040}    ${POD}    ${body}
    Entry Goes    ${RFC8040}    ${POD}
    Request    GET    ${ENTRY}    expected=404

The Specification's Pod Is Taken
    [Documentation]    As it is printed, with its number in quotes. Its uid is stored in lower case.
    ${body}=    Body    specification-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    ${answer}=    Request    GET    ${PODS}/pods/AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C    expected=200
    VAR    ${pod}    ${answer.json()}[pods][0]
    Should Be Equal    ${pod}[uid]    ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c
    Should Be Equal    ${pod}[interface][0][segmentation-id]    ${0}

Many Pods Come In One Body Or Not At All
    [Documentation]    One of two is there already, so neither is written.
    [Tags]    odl
    ${both}=    Both Pods
    ${body}=    Body    second-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    ${answer}=    Request    POST    ${PODS}    ${both}    expected=409
    Error Should Be    ${answer}    data-exists
    Request    GET    ${ENTRY}    expected=404
    Request    DELETE    ${PODS}/pods/${SECOND_POD_UID}    expected=200
    Request    POST    ${PODS}    ${both}    expected=204
    ${answer}=    Request    GET    ${PODS}    expected=200
    Length Should Be    ${answer.json()}[coe][pods]    2

Deleting The Container Deletes All Pods
    [Tags]    odl
    ${body}=    Both Pods
    Request    POST    ${PODS}    ${body}    expected=204
    Request    DELETE    ${PODS}    expected=200
    Request    GET    ${PODS}    expected=404
    Request    GET    ${ENTRY}    expected=404

An Interface Is A Resource Of Its Own
    [Tags]    odl
    ${body}=    Body    pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    ${answer}=    Request    GET    ${ENTRY}/interface/${POD_UID}    expected=200
    Should Be Equal    ${answer.json()}[interface][0][ip-address]    ${POD_ADDRESS}
    Request    DELETE    ${ENTRY}/interface/${POD_UID}    expected=200
    ${answer}=    Request    GET    ${ENTRY}    expected=200
    Should Not Contain    ${answer.json()}[pods][0]    interface

A Pod That Moves Is Taken To The Other Node
    ${body}=    Body    pod.json
    Request    PUT    ${ENTRY}    ${body}    expected=201
    Confirmed    ${ELAN_INSTANCES}    ${NODE_ADDRESS}:${NAMESPACE}
    ${body}=    Evaluate    $body.replace($NODE_ADDRESS, $OTHER_NODE)
    Request    PUT    ${ENTRY}    ${body}    expected=200
    Confirmed    ${ELAN_INSTANCES}    ${OTHER_NODE}:${NAMESPACE}
    Wait For Sync
    ${object}=    Wanted    ${ELAN_INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[elan-instance-name]    ${OTHER_NODE}:${NAMESPACE}

A Pod That Is Not Scheduled Makes Nothing
    [Documentation]    It has neither node nor address yet, as a watcher sends it first.
    [Tags]    odl
    VAR    ${body}    {"pods": [{"uid": "${POD_UID}", "name": "${POD_NAME}", "network-NS": "pending"}]}
    Request    PUT    ${ENTRY}    ${body}    expected=201
    Not Wanted    ${INTERFACES}    pending:${POD_NAME}
    Not Wanted    ${ELAN_INTERFACES}    pending:${POD_NAME}

What A Watcher Sends Is Taken
    [Documentation]    OpenDaylight's watcher sends empty strings and null for what is not known.
    VAR    ${body}
    ...    {"pod:pods": [{"pod:uid": "${POD_UID}", "pod:name": "${POD_NAME}", "pod:host-ip-address": "", "pod:interface": null}]}
    Request    PUT    ${ENTRY}/    ${body}    expected=201
    ${answer}=    Request    GET    ${ENTRY}    expected=200
    Should Not Contain    ${answer.json()}[pods][0]    host-ip-address


*** Keywords ***
Both Pods
    [Documentation]    A body with two pods.
    ${one}=    Body As Value    pod.json
    ${two}=    Body As Value    second-pod.json
    ${body}=    Evaluate    json.dumps({'pod:pods': $one['pod:pods'] + $two['pod:pods']})
    RETURN    ${body}
